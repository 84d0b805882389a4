"""Measures how fast Jobtree decides on a large fleet, and compares with bounds (``python -m benchmarks``).

``scale`` has the sizes of the fleets; ``fixtures`` makes their nodes, budgets and closed leases, ``workload``
their Runs. ``grow`` lets the planner fill a fleet and then ends Runs at random, so that free GPUs are
distributed as in a fleet in use. ``cases`` lists the measurements; ``bars`` has the bounds, ``report``
prints, ``results`` keeps the figures of the last runs.
"""
