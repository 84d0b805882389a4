"""Jobtree shares a GPU fleet on Kubernetes between teams."""

__version__ = "0.1.0"
