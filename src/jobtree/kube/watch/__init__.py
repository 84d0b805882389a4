"""Keeps object stores up to date by list and watch."""
