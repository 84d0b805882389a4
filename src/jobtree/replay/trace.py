"""A trace: the jobs that a cluster was asked to run, read from a CSV file, plain or gzip.

Columns are ``job_id,user_or_team,submit_s,duration_s,gpus,gpu_type,status``; others may follow and can be
filtered by. A row that breaks a rule is skipped, counted by its rule, and the first few are told in full:
one bad row of a million must not stop a replay, and must not go unnoticed either. Rows may come in any
order. Jobs are kept in columns, 40 bytes each, and numbered by submission, then row.
"""

import csv
import gzip
import zlib
from array import array
from collections.abc import Iterator
from hashlib import file_digest, sha256
from pathlib import Path
from typing import NamedTuple, TextIO

import msgspec

from jobtree.api.problems import ABSENT, InputError, Problem
from jobtree.api.quantities import SECOND

REQUIRED = ("job_id", "submit_s", "duration_s", "gpus")
NOBODY = "all"  # the team of jobs that name none
LATEST_S = 10**9  # some thirty years: beyond it, a number is no time of a trace
MOST_GPUS = 10**6
TOLD = 5
GZIP = b"\x1f\x8b"
ENCODING = "utf-8-sig"


class Trace(msgspec.Struct, frozen=True, eq=False):
    """Jobs by submission. Times are milliseconds from the trace's own zero."""

    submit: "array[int]"
    duration: "array[int]"
    gpus: "array[int]"
    team: "array[int]"  # position in teams
    row: "array[int]"  # in the file, the first after the head being 2
    teams: tuple[str, ...]
    skipped: dict[str, int]  # by rule
    told: tuple[str, ...]  # the first skipped rows in full
    digest: str

    def __len__(self) -> int:
        return len(self.submit)


class Cut(NamedTuple):
    """Which rows to take: those whose column has this value, submitted in ``[since, until)`` seconds."""

    where: tuple[tuple[str, str], ...] = ()
    since_s: int = 0
    until_s: int = LATEST_S


class Row(NamedTuple):
    submit: int
    duration: int
    gpus: int
    team: str


class BadRowError(ValueError):
    def __init__(self, field: str, value: object, rule: str) -> None:
        self.field, self.value, self.rule = field, value, rule
        super().__init__(str(Problem(field, value, rule)))


def read_trace(path: str, most_gpus: int = MOST_GPUS, cut: Cut | None = None) -> Trace:
    """The jobs of a file. Raises InputError where it is no trace at all."""
    reader = Reader(path, most_gpus, cut or Cut())
    try:
        with Path(path).open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
            file.seek(0)
            zipped = file.read(len(GZIP)) == GZIP
        with gzip.open(path, "rt", encoding=ENCODING, newline="") if zipped else plain(path) as text:
            for number, row in rows(text, path):
                reader.take(number, row)
    except FileNotFoundError:
        raise InputError(path, ["there is no such file"]) from None
    except UnicodeDecodeError as broken:
        raise InputError(path, [f"is not text in UTF-8: {broken}"]) from None
    except (OSError, EOFError, zlib.error) as broken:
        raise InputError(path, [f"cannot be read: {broken}"]) from None
    except csv.Error as broken:
        raise InputError(path, [f"is not CSV: {broken}"]) from None
    return reader.trace(digest)


def plain(path: str) -> TextIO:
    return Path(path).open(encoding=ENCODING, newline="")


def rows(text: TextIO, path: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Every row after the head, with its number in the file."""
    reader = csv.reader(text)
    head = [name.strip() for name in next(reader, [])]
    if missing := [name for name in REQUIRED if name not in head]:
        rule = f"a trace begins with a line that names its columns; these are missing: {', '.join(missing)}"
        raise InputError(path, [Problem("line 1", ",".join(head), rule)])
    for number, cells in enumerate(reader, 2):
        if cells:
            yield number, dict(zip(head, cells, strict=False))


class Reader:
    """Takes rows in any order, and puts their jobs in order at the end."""

    def __init__(self, path: str, most_gpus: int, cut: Cut) -> None:
        self._path, self._most_gpus, self._cut = path, most_gpus, cut
        self._columns = [array("q") for _ in range(5)]
        self._teams: dict[str, int] = {}
        self._seen: set[str] = set()
        self._skipped: dict[str, int] = {}
        self._told: list[str] = []
        self._read = 0

    def take(self, number: int, cells: dict[str, str]) -> None:
        if any(cells.get(column) != value for column, value in self._cut.where):
            return
        self._read += 1
        try:
            row = self._checked(cells)
        except BadRowError as bad:
            rule = f"{bad.field}: {bad.rule}"
            self._skipped[rule] = self._skipped.get(rule, 0) + 1
            if len(self._told) < TOLD:
                self._told.append(f"{self._path}, line {number}: {bad}")
            return
        if self._cut.since_s * SECOND <= row.submit < self._cut.until_s * SECOND:
            team = self._teams.setdefault(row.team, len(self._teams))
            for column, value in zip(self._columns, (*row[:3], team, number), strict=True):
                column.append(value)

    def _checked(self, cells: dict[str, str]) -> Row:
        name = cells.get("job_id", "").strip()
        if not name:
            raise BadRowError("job_id", ABSENT, "is missing")
        if name in self._seen:
            raise BadRowError("job_id", name, "stands in an earlier row already")
        submit = milliseconds(cells, "submit_s")
        duration = milliseconds(cells, "duration_s")
        if duration == 0:
            raise BadRowError("duration_s", cells["duration_s"], "must be more than 0")
        gpus = self._gpus(cells)
        self._seen.add(name)
        return Row(submit, duration, gpus, cells.get("user_or_team", "").strip() or NOBODY)

    def _gpus(self, cells: dict[str, str]) -> int:
        text = cells.get("gpus", "").strip()
        if not text.isdecimal() or not int(text):
            raise BadRowError("gpus", text or ABSENT, "must be a whole number, 1 or more")
        if int(text) > self._most_gpus:
            raise BadRowError("gpus", int(text), f"the fleet has {self._most_gpus}")
        return int(text)

    def trace(self, digest: str) -> Trace:
        submit = self._columns[0]
        if not submit:
            what = "no row is left" if self._read else "there are no rows"
            raise InputError(self._path, [f"{what} to replay", *self._told])
        order = sorted(range(len(submit)), key=submit.__getitem__)  # rows at one instant stay in their order
        submit, duration, gpus, team, row = (
            array("q", map(column.__getitem__, order)) for column in self._columns
        )
        parts = (digest, self._cut, self._most_gpus)
        return Trace(
            submit=submit,
            duration=duration,
            gpus=gpus,
            team=team,
            row=row,
            teams=tuple(self._teams),
            skipped=self._skipped,
            told=tuple(self._told),
            digest=sha256(repr(parts).encode()).hexdigest(),
        )


def milliseconds(cells: dict[str, str], field: str) -> int:
    """A time in seconds, whole or decimal."""
    text = cells.get(field, "").strip()
    if not text:
        raise BadRowError(field, ABSENT, "is missing")
    if text.isdecimal() and len(text) < len(str(LATEST_S)):
        return int(text) * SECOND
    try:
        seconds = float(text)
    except ValueError:
        raise BadRowError(field, text, "must be a number of seconds") from None
    if seconds < 0:
        raise BadRowError(field, text, "must not be negative")
    if not seconds < LATEST_S:  # also what is no number
        raise BadRowError(field, text, f"must be less than {LATEST_S}")
    return round(seconds * SECOND)


def skipped_lines(trace: Trace) -> list[str]:
    """What a reader of the replay must know about the rows that are not in it."""
    if not trace.skipped:
        return []
    counted = [f"{count} × {rule}" for rule, count in sorted(trace.skipped.items())]
    return [f"{sum(trace.skipped.values())} rows were skipped: {'; '.join(counted)}", *trace.told]
