"""Converts Slurm scripts and accounts, and Kueue objects, to Runs and Budgets.

Text in, documents and remarks out: nothing here reads a file, a clock or a cluster. What Jobtree has no
equivalent for becomes a remark that says what happens instead and what to do.
"""
