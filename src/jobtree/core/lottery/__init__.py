"""Draws, resolutions and their records, and kill probabilities; imports no other room."""
