"""Writes objects with preconditions, and elects a leader."""
