"""Kills the manager and makes its requests fail; the outcome must stay the same."""
