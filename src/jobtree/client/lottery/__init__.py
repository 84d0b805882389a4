"""Finds the records of lotteries, and checks them."""
