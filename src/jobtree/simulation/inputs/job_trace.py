"""Reads a trace: the jobs that were submitted to a cluster, from a CSV file, plain or gzip.

The columns are ``job_id,user_or_team,submit_s,duration_s,gpus,gpu_type,status``; other columns can be used as
filters. A row that breaks a rule is skipped and counted by its rule, and the first such rows are reported:
one bad row of a million does not stop a replay. Rows may be in any order. Jobs are kept in columns, 40 bytes
each, and numbered by submission, then by row.
"""

from array import array
from collections.abc import Collection
from hashlib import file_digest, sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from jobtree.api.schema.problems import ABSENT, InputError, Problem
from jobtree.api.schema.quantities import SECOND
from jobtree.simulation.inputs.csv_table import MAX_DIGITS, MAX_SECONDS, BadRowError, milliseconds, opened

REQUIRED = ("job_id", "submit_s", "duration_s", "gpus")
NOBODY = "all"  # the team of jobs that name none
MOST_GPUS = 10**6
MAX_SHOWN_ROWS = 5


class Trace(msgspec.Struct, frozen=True, eq=False):
    """Jobs in the order of submission. Times are milliseconds from the beginning of the trace."""

    submit: "array[int]"
    duration: "array[int]"
    gpus: "array[int]"
    team: "array[int]"  # position in teams
    row: "array[int]"  # in the file, the first after the head being 2
    teams: tuple[str, ...]
    skipped: dict[str, int]  # by rule
    shown: tuple[str, ...]  # the first skipped rows in full
    digest: str

    def __len__(self) -> int:
        return len(self.submit)


class Cut(NamedTuple):
    """The rows to take: those with these values of columns, submitted in ``[since, until)`` seconds."""

    where: tuple[tuple[str, str], ...] = ()
    since_s: int = 0
    until_s: int = MAX_SECONDS


class TraceRow(NamedTuple):
    submit: int
    duration: int
    gpus: int
    team: str


def read_trace(path: str, most_gpus: int = MOST_GPUS, cut: Cut | None = None) -> Trace:
    """Returns the jobs of a file. Raises InputError if it is not a trace."""
    with opened(path, "a trace", REQUIRED) as table:
        reader = TraceReader(path, table.head, most_gpus, cut or Cut())
        for number, row in table.rows:
            reader.take(number, row)
        with Path(path).open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
    return reader.trace(digest)


class TraceReader:
    """Takes rows in any order, and sorts their jobs at the end."""

    def __init__(self, path: str, head: Collection[str], most_gpus: int, cut: Cut) -> None:
        """Raises InputError if the cut names an unknown column."""
        if unknown := [column for column, _ in cut.where if column not in head]:
            rule = f"there is no such column; there are {', '.join(head)}"
            raise InputError(path, [Problem("--where", column, rule) for column in unknown])
        self._path, self._most_gpus, self._cut = path, most_gpus, cut
        self._columns = [array("q") for _ in range(5)]
        self._teams: dict[str, int] = {}
        self._seen: set[str] = set()
        self._skipped: dict[str, int] = {}
        self._shown: list[str] = []
        self._read = 0

    def take(self, number: int, cells: dict[str, str]) -> None:
        if any(cells.get(column) != value for column, value in self._cut.where):
            return
        self._read += 1
        try:
            row = self.checked(cells)
        except BadRowError as bad:
            rule = f"{bad.field}: {bad.rule}"
            self._skipped[rule] = self._skipped.get(rule, 0) + 1
            if len(self._shown) < MAX_SHOWN_ROWS:
                self._shown.append(f"{self._path}, {self.place(number, cells)}: {bad}")
            return
        if self._cut.since_s * SECOND <= row.submit < self._cut.until_s * SECOND:
            team = self._teams.setdefault(row.team, len(self._teams))
            for column, value in zip(self._columns, (*row[:3], team, number), strict=True):
                column.append(value)

    def place(self, number: int, cells: dict[str, str]) -> str:  # noqa: ARG002  where rows have names they do
        """Returns the file and line of a row, for messages."""
        return f"line {number}"

    def checked(self, cells: dict[str, str]) -> TraceRow:
        """Returns the job of a row. Raises BadRowError."""
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
        return TraceRow(submit, duration, gpus, cells.get("user_or_team", "").strip() or NOBODY)

    def _gpus(self, cells: dict[str, str]) -> int:
        text = cells.get("gpus", "").strip()
        if text.isdecimal() and (len(text) > MAX_DIGITS or int(text) > self._most_gpus):
            raise BadRowError("gpus", text, too_large(self._most_gpus))
        if not text.isdecimal() or not int(text):
            raise BadRowError("gpus", text or ABSENT, "must be a whole number, 1 or more")
        return int(text)

    def trace(self, digest: str) -> Trace:
        submit = self._columns[0]
        if not submit:
            what = "no row is left" if self._read else "there are no rows"
            raise InputError(self._path, [f"{what} to replay", *self._shown])
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
            shown=tuple(self._shown),
            digest=sha256(repr(parts).encode()).hexdigest(),
        )


def fitting(trace: Trace, most_gpus: int) -> Trace:
    """Returns the jobs that fit a smaller fleet; the others are skipped and counted. Raises InputError."""
    jobs = [job for job, gpus in enumerate(trace.gpus) if gpus <= most_gpus]
    if len(jobs) == len(trace):
        return trace
    rule = too_large(most_gpus)
    if not jobs:
        raise InputError("fleet", [Problem("gpus", min(trace.gpus), f"{rule}: no job is left to replay")])
    columns = (trace.submit, trace.duration, trace.gpus, trace.team, trace.row)
    submit, duration, gpus, team, row = (array("q", map(column.__getitem__, jobs)) for column in columns)
    return msgspec.structs.replace(
        trace,
        submit=submit,
        duration=duration,
        gpus=gpus,
        team=team,
        row=row,
        skipped=trace.skipped | {f"gpus: {rule}": len(trace) - len(jobs)},
        digest=sha256(repr((trace.digest, most_gpus)).encode()).hexdigest(),
    )


def too_large(most_gpus: int) -> str:
    return f"the fleet has {most_gpus}"


def skipped_lines(trace: Trace) -> list[str]:
    """Returns lines about the skipped rows, for the reader of the replay."""
    if not trace.skipped:
        return []
    counted = [f"{count} × {rule}" for rule, count in sorted(trace.skipped.items())]
    rows = sum(trace.skipped.values())
    return [f"{rows} row{'s were' if rows > 1 else ' was'} skipped: {'; '.join(counted)}", *trace.shown]
