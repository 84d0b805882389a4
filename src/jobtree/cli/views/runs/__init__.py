"""Prints Runs, plans, remedies and job trees."""
