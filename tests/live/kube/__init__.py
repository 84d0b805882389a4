"""Tests the client of `jobtree.kube` on a real API server."""
