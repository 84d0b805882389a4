"""Reads and writes YAML and JSON, and decodes documents into structs."""
