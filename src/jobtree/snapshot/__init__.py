"""Holds a cluster in memory: a state file, or a live cluster as it was read."""
