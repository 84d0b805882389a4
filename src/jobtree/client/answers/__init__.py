"""The answers of the library as rows, tables of HTML and timelines."""
