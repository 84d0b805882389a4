"""Formats domains, node labels, the coming hours, and replays."""
