"""Builds pod documents from decisions, without I/O."""
