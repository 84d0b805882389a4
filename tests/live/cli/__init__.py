"""Tests `kubectl runs` on a live cluster, run by users with their own rights."""
