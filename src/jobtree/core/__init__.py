"""Decides, and does nothing else: a world in, actions and verdicts out."""
