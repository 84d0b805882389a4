"""The Python library: what ``import jobtree`` gives.

The command line is its first user: what a verb knows, this package returns, and the verb prints it.
"""

STATE_VARIABLE = "JOBTREE_STATE"
