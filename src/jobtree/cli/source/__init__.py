"""Opens a live cluster or a state file, and the archive."""
