"""Writes decisions, Events and archives, and creates and deletes pods."""
