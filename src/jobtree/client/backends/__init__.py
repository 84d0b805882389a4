"""Does on a live cluster and on a state file what the objects of the library need."""
