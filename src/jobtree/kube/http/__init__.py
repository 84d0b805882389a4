"""Sends requests to an API server: connections, retries, lists."""
