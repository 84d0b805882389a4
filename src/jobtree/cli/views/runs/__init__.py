"""Formats Runs, plans, remedies and job trees."""
