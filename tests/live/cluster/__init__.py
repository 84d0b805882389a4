"""Starts a control plane and its server processes, and sends requests to it."""
