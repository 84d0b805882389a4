"""Runs a replay in virtual time, measures it, saves it."""
