"""What people bring along from Slurm and Kueue, as Budgets and Runs.

Text in, documents and remarks out: nothing here reads a file, a clock or a cluster. What Jobtree has no
equivalent for is never dropped in silence: it becomes a remark that says what happens instead and what to
do.
"""
