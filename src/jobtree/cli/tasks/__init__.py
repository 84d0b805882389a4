"""Does what a verb does."""
