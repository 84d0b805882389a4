"""Tests which requests the admission policies and the webhook refuse."""
