"""Runs the planning pass: admission, promises that are due, resizing, recovery, repair."""
