"""Figures, what is asked of them, and the table: new beside asked, raw limit and previous.

``results.json`` holds what was last measured at full size: ``{"machine": …, "measured": {row: date}, "rows":
{row: {figure: value}}}``. A run merges its rows into it when it is told to.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from benchmarks.machine import Machine
from benchmarks.report import number
from benchmarks.results import rounded

PATH = Path(__file__).with_name("results.json")
NAME_WIDTH = 46


class Bar(msgspec.Struct, frozen=True):
    """The bound of a figure: at least or at most a limit."""

    limit: float
    at_most: bool = False

    def holds(self, value: float) -> bool:
        return value <= self.limit if self.at_most else value >= self.limit

    def __str__(self) -> str:
        return f"{'≤' if self.at_most else '≥'} {number(self.limit)}"


class Figure(msgspec.Struct, frozen=True):
    """A figure; ``raw`` is the limit that was measured in the same run, in the same unit."""

    name: str
    value: float
    unit: str = ""
    bar: Bar | None = None
    raw: float | None = None

    @property
    def verdict(self) -> str:
        if self.bar is None:
            return ""
        return "pass" if self.bar.holds(self.value) else "MISS"


class Results(msgspec.Struct):
    machine: Machine | None = None
    measured: dict[str, str] = {}
    rows: dict[str, dict[str, float]] = {}


def load(path: Path = PATH) -> Results:
    return msgspec.json.decode(path.read_bytes(), type=Results) if path.exists() else Results()


def merge(results: Results, row: str, figures: Iterable[Figure], now: datetime | None = None) -> None:
    results.rows[row] = {figure.name: rounded(figure.value) for figure in figures}
    results.measured[row] = (now or datetime.now(UTC)).strftime("%Y-%m-%d")


def save(results: Results, machine: Machine, path: Path = PATH) -> None:
    results.machine = machine
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")


def table(row: str, figures: Iterable[Figure], before: Mapping[str, float]) -> str:
    """Returns the table of a row, with a line for each figure."""
    lines = [
        "",
        f"{row:<{NAME_WIDTH + 2}}{'measured':>14}  {'asked':<9}{'':<5}{'raw limit':>10}{'before':>10}",
    ]
    for figure in figures:
        previous = number(before[figure.name]) if figure.name in before else ""
        raw = number(figure.raw) if figure.raw is not None else ""
        value = f"{number(figure.value):>9} {figure.unit:<4}"
        asked = f"{figure.bar or ''!s:<9}{figure.verdict:<5}"
        lines.append(f"  {figure.name:<{NAME_WIDTH}}{value}  {asked}{raw:>10}{previous:>10}".rstrip())
    return "\n".join(lines)


def missed(row: str, figures: Iterable[Figure]) -> list[str]:
    return [f"{row}: {figure.name}" for figure in figures if figure.verdict == "MISS"]
