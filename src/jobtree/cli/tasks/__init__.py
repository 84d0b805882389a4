"""Implements the verbs."""
