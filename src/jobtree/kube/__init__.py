"""Speaks Kubernetes: who to talk to and as whom, requests, watches, what was seen, writes, leadership."""
