"""Computes a plan from a world, as a pure function: no clock, I/O, randomness or logging."""
