"""What every verb shares: options, tables, output formats, wording, exit codes."""
