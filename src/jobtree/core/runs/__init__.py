"""The state of a Run: ranks, allocation, stages, relations, past run times."""
