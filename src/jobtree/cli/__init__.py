"""Implements ``kubectl runs``.

A file in ``verbs`` declares one verb: its arguments, its help, its body. It is light, since ``--help`` and
completion load it. The body imports the cluster and the views when it runs.
"""
