"""Applies cluster changes to the world, plans, and returns a write set."""
