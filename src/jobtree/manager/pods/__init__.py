"""Pods, from what was decided to documents. Pure: nothing here talks to a server."""
