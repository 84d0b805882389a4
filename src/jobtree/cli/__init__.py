"""Implements ``kubectl runs``.

A file in ``verbs`` declares one verb: its arguments, its help and its body. The file must load fast, since
``--help`` and completion load it; the body imports the cluster and the views when it runs.
"""
