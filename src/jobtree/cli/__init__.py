"""``kubectl runs``: one file per verb, and what the verbs share.

Files named after a verb declare it: its arguments, its help, its body. They are light, since ``--help`` and
completion load them; the cluster and everything that shows it are imported by the body, when it runs.
"""
