"""Formats what the verbs print."""
