"""Serves the admission webhook and manages its certificate."""
