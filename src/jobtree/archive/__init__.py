"""Closed leases on a volume: one checksummed file for every day, written once and kept for ever."""
