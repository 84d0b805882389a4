"""What would have happened: traces of real clusters replayed in virtual time, under Jobtree and others."""
