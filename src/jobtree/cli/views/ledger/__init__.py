"""Formats leases, usage of envelopes, and Reservations."""
