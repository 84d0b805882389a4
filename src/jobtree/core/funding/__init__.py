"""Computes who can pay for a Run, now and in the future, and which limit binds."""
