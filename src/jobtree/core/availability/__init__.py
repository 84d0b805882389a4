"""Computes free GPUs over time, and the earliest start of a waiting Run."""
