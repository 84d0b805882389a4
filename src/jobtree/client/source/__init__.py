"""Opens a live cluster or a state file, reads and changes its objects, and reads the archive."""
