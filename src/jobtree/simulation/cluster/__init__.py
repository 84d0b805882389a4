"""A simulated cluster: a clock that is moved, work that takes its time, nodes that fail."""
