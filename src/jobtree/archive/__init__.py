"""Keeps closed leases on a volume, one checksummed file a day."""
