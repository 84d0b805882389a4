"""Defines the four kinds, reads their documents and checks the rules of one object."""
