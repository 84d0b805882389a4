"""Reads what Jobtree needs of Nodes, Pods and pod templates."""
