"""Runs on a live cluster: watches it, plans, and writes what follows."""
