"""Checks every rule that needs one object, and which fields may change."""
