"""Declares each verb in a file of its own."""
