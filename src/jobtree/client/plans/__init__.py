"""Answers what a Run waits for, what would help, and what a change would do, as data."""
