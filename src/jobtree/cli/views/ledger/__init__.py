"""Prints leases, usage of envelopes, and Reservations."""
