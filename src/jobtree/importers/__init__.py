"""Converts Slurm scripts and accounts, and Kueue objects, to Runs and Budgets.

The importers take text and return documents and remarks; they read no file, clock or cluster. A feature
without an equivalent in Jobtree becomes a remark that says what happens instead and what to do.
"""
