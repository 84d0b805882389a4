"""The write set of one turn, and what pods report."""
