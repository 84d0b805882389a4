"""Nodes, domains and flavors with their free slots, and packing."""
