"""Prints what a verb shows."""
