"""How fast Jobtree decides on a large fleet, beside the bounds it must keep (``python -m benchmarks``).

``scale`` says how large a fleet is; ``fixtures`` writes its nodes, budgets and history, ``workload`` its
Runs. ``grow`` lets the planner itself fill the fleet and then ends Runs at random, so that the holes are
those of a fleet in use. ``cases`` says what is measured, by ``arrivals``, ``footprint`` and ``sampling``;
``bars`` holds the bounds; ``report`` prints; ``results`` keeps what was measured, run by run.
"""
