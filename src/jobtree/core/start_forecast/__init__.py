"""Computes expected starts (p50, p90). They decide nothing."""
