"""The tests of Jobtree, and helper modules that several kinds of tests share."""
