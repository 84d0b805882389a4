"""HTML for notebooks. Every text is escaped, since names and messages come from other users."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape

FRAME = '<div class="jobtree">{}</div>'


def html_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns a table."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{cell(value)}</td>' for value in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_section(title: str, parts: Iterable[str]) -> str:
    """Returns parts that are HTML already below a title, which is text."""
    return FRAME.format(f"<p><b>{escape(title)}</b></p>{''.join(parts)}")


def cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return escape(", ".join(map(str, value)) if isinstance(value, tuple) else str(value))
