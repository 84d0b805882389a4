"""The manager on a real API server: how fast it is, beside how fast it could be at most."""
