"""Prints tables that fit the terminal: plain aligned text; the least important columns are dropped first.

A column that answers the question of the verb is never dropped: where it does not fit, it is printed on a
line of its own below each row. Output to a file or a program has no limit of width, unless COLUMNS sets one.
"""

import os
import shutil
import sys
from collections.abc import Sequence
from textwrap import wrap
from typing import NamedTuple

import click

from jobtree.cli.shell.options import CommandOptions

GAP = "  "
BELOW = "    "  # the indent of a line below a row
NARROWEST = 12
COLORS = {
    "Running": "green",
    "Pending": "yellow",
    "Reserved": "yellow",
    "Waiting": "yellow",
    "Failed": "red",
}


class Column(NamedTuple):
    """A column. Rank 0 is never dropped, higher ranks are dropped first, rank 9 is for wide tables only.

    An answer that does not fit is printed below its row.
    """

    title: str
    rank: int = 0
    right: bool = False
    shrinks: bool = False
    answer: bool = False


WIDE_ONLY = 9


def print_table(settings: CommandOptions, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    for line in layout(columns, rows, None if settings.wide else room(), wide=settings.wide):
        click.echo(line, color=settings.color)


def room() -> int | None:
    """Returns the width of the terminal in characters; None: no limit."""
    if os.environ.get("COLUMNS", "").isdecimal() or sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    return None


def layout(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None, *, wide: bool = False
) -> list[str]:
    """Returns the lines of a table, at most ``width`` wide if dropping and shrinking columns suffices."""
    kept = [at for at, column in enumerate(columns) if wide or column.rank < WIDE_ONLY]
    if not wide:
        kept = [at for at in kept if columns[at].rank == 0 or any(row[at] for row in rows)]
    sizes = {at: max(len(columns[at].title), *(len(row[at]) for row in rows), 0) for at in kept}
    if width is not None:
        fit(columns, sizes, width)
    below = [at for at in kept if at not in sizes and columns[at].answer]
    titles = [column.title for column in columns]
    lines = [_line(columns, sizes, titles, plain=True)]
    for row in rows:
        lines.append(_line(columns, sizes, row, plain=False))
        lines += lines_below([(columns[at].title, row[at]) for at in below if row[at]], width or 0)
    return lines


def lines_below(answers: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Returns ``    PAID Owned 8  REASON Held``: the answers that did not fit into a row, wrapped."""
    lines: list[str] = []
    for title, text in answers:
        part = f"{title} {text}"
        if lines and len(lines[-1]) + len(GAP) + len(part) <= width:
            lines[-1] += GAP + part
        else:
            lines += wrap(part, max(width, NARROWEST), initial_indent=BELOW, subsequent_indent=2 * BELOW)
    return lines


def fit(columns: Sequence[Column], sizes: dict[int, int], width: int) -> None:
    """Keeps the columns that fit, most important first; then shrinks the widest."""
    kept: list[int] = []
    free = width + len(GAP)
    for at in sorted(sizes, key=lambda at: (columns[at].rank, at)):
        least = min(sizes[at], NARROWEST) if columns[at].shrinks else sizes[at]
        fits = least + len(GAP) <= free
        if fits or not kept or (columns[at].rank == 0 and not columns[at].answer):
            kept.append(at)
            free -= least + len(GAP)
    for at in set(sizes) - set(kept):
        del sizes[at]
    while sum(sizes.values()) + len(GAP) * (len(sizes) - 1) > width:
        shrinkable = [at for at in sizes if columns[at].shrinks and sizes[at] > NARROWEST]
        if not shrinkable:
            return
        sizes[max(shrinkable, key=lambda at: (sizes[at], at))] -= 1


def _line(columns: Sequence[Column], sizes: dict[int, int], row: Sequence[str], *, plain: bool) -> str:
    cells = []
    for at, size in sizes.items():
        text = row[at] if len(row[at]) <= size else row[at][: size - 1] + "…"
        padded = text.rjust(size) if columns[at].right else text.ljust(size)
        cells.append(padded if plain or text not in COLORS else painted(text) + padded[len(text) :])
    return GAP.join(cells).rstrip()


def painted(phase: str) -> str:
    """Returns the phase in its colour; click removes colours where there is no terminal."""
    return click.style(phase, fg=COLORS[phase]) if phase in COLORS else phase
