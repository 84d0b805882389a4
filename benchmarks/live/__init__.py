"""Measures the manager on a real API server, and compares with the limits of that server."""
