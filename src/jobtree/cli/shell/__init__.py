"""Defines what all verbs share: options, tables, output formats, wording, exit codes."""
