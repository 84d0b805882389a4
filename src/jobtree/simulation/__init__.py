"""Replays job traces in virtual time, under Jobtree and other schedulers."""
