"""Schedulers that people use today, for comparison only: each decides which waiting job starts where."""
