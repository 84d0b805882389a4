"""Reads tables in CSV files, plain or gzip, with a header and times in seconds."""

import csv
import gzip
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TextIO

from jobtree.api.schema.problems import ABSENT, InputError, Problem
from jobtree.api.schema.quantities import SECOND

MAX_SECONDS = 10**9  # about thirty years; no time of a trace is later
MAX_DIGITS = 18  # of a number in a table
GZIP = b"\x1f\x8b"
ENCODING = "utf-8-sig"


class Table(NamedTuple):
    head: list[str]
    rows: Iterator[tuple[int, dict[str, str]]]  # each with its number in the file, the first being 2


class BadRowError(ValueError):
    def __init__(self, field: str, value: object, rule: str) -> None:
        self.field, self.value, self.rule = field, value, rule
        super().__init__(str(Problem(field, value, rule)))


@contextmanager
def opened(path: str, what: str, columns: Iterable[str]) -> Iterator[Table]:
    """Opens the table in a file. Raises InputError at once or while rows are read."""
    try:
        with Path(path).open("rb") as file:
            zipped = file.read(len(GZIP)) == GZIP
        with gzip.open(path, "rt", encoding=ENCODING, newline="") if zipped else decompressed(path) as text:
            reader = csv.reader(text)
            head = [name.strip() for name in next(reader, [])]
            if missing := [name for name in columns if name not in head]:
                rule = f"{what} begins with a line that names its columns; these are missing: "
                raise InputError(path, [Problem("line 1", ",".join(head), rule + ", ".join(missing))])
            numbered = enumerate(reader, 2)
            yield Table(head, ((at, dict(zip(head, cells, strict=False))) for at, cells in numbered if cells))
    except FileNotFoundError:
        raise InputError(path, ["there is no such file"]) from None
    except UnicodeDecodeError as broken:
        raise InputError(path, [f"is not text in UTF-8: {broken}"]) from None
    except (OSError, EOFError, zlib.error) as broken:
        raise InputError(path, [f"cannot be read: {broken}"]) from None
    except csv.Error as broken:
        raise InputError(path, [f"is not CSV: {broken}"]) from None


def decompressed(path: str) -> TextIO:
    return Path(path).open(encoding=ENCODING, newline="")


def milliseconds(cells: dict[str, str], field: str) -> int:
    """Returns the milliseconds of a time in seconds, whole or decimal. Raises BadRowError."""
    text = cells.get(field, "").strip()
    if not text:
        raise BadRowError(field, ABSENT, "is missing")
    if text.isdecimal() and len(text) < len(str(MAX_SECONDS)):
        return int(text) * SECOND
    try:
        seconds = float(text)
    except ValueError:
        raise BadRowError(field, text, "must be a number of seconds") from None
    if seconds < 0:
        raise BadRowError(field, text, "must not be negative")
    if not seconds < MAX_SECONDS:  # also what is no number
        raise BadRowError(field, text, f"must be less than {MAX_SECONDS}")
    return round(seconds * SECOND)
