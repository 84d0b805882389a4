"""Runs the manager on a control plane, and tests what it does."""
