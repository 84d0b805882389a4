"""Finds, builds and installs the programs that the live tests run."""
