"""A cluster that is not there: a virtual clock, documents in a file, and the same core."""
