"""Prints lotteries, their records, and risks."""
