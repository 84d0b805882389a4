"""Families, envelopes and caps, with their charges and usage now and over time."""
