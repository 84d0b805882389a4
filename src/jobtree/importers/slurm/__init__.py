"""Converts batch scripts, accounts and past jobs of Slurm."""
