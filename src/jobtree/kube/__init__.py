"""Talks to a Kubernetes API server: access, requests, watches, writes, leader election."""
