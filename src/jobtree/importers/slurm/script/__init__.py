"""Reads batch scripts of Slurm."""
