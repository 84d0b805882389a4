"""Jobtree and the schedulers that it is compared with; each decides which waiting job starts where."""
