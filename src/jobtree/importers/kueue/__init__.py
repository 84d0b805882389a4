"""Converts queues, cohorts and jobs of Kueue."""
