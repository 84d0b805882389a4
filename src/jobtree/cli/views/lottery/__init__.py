"""Formats lotteries, their records and proofs, and risks."""
