"""What was measured, run by run: ``results.json`` is the one file of all bounds of ``make bench``.

For every section it holds the last runs at full size, oldest first, and for every bound its limit, where it
comes from, the worst figure of those runs and the margin that is left. ``python -m benchmarks --write`` adds
the sections that it measured; ``--bounds`` prints the file as a table, without measuring.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from benchmarks.machine import Machine
from benchmarks.report import NAME_WIDTH, Section, margin, number

PATH = Path(__file__).with_name("results.json")
KEPT = 5  # runs of each section


class Run(msgspec.Struct, rename="camel"):
    """One measurement of a section; other processes used ``others_percent`` of the machine."""

    measured: str
    others_percent: int
    figures: dict[str, float]


class Bound(msgspec.Struct, rename="camel"):
    limit: float
    source: str
    worst: float
    margin_percent: int


class Row(msgspec.Struct):
    bounds: dict[str, Bound] = {}
    runs: list[Run] = []


class Results(msgspec.Struct):
    machine: Machine | None = None
    rows: dict[str, Row] = {}

    def before(self, title: str) -> Mapping[str, float]:
        """Returns the last figures of a section."""
        row = self.rows.get(title)
        return row.runs[-1].figures if row is not None and row.runs else {}

    def add(self, section: Section, others_percent: int, now: datetime | None = None) -> None:
        """Adds a run of a section, and updates its bounds."""
        row = self.rows.setdefault(section.title, Row())
        figures = {figure.name: rounded(figure.value) for figure in section.figures}
        measured = (now or datetime.now(UTC)).strftime("%Y-%m-%d")
        row.runs = [*row.runs, Run(measured, others_percent, figures)][-KEPT:]
        row.bounds = {}
        for figure in section.figures:
            if figure.bar is not None:
                worst = max(run.figures.get(figure.name, 0.0) for run in row.runs)
                limit = figure.bar.limit
                row.bounds[figure.name] = Bound(limit, figure.bar.source, worst, margin(worst, limit))


def load(path: Path = PATH) -> Results:
    return msgspec.json.decode(path.read_bytes(), type=Results) if path.exists() else Results()


def save(results: Results, machine: Machine, path: Path = PATH) -> None:
    results.machine = machine
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")


def rounded(value: float) -> float:
    """Rounds a figure to four digits, the precision of a measurement."""
    return float(f"{value:.4g}")


def bounds(results: Results) -> Iterator[str]:
    """Yields every bound with its runs, margin and reason."""
    for title, row in results.rows.items():
        if row.bounds:
            yield f"\n{title} ({', '.join(run.measured for run in row.runs)})"
        for name, bound in row.bounds.items():
            seen = ", ".join(number(run.figures[name]) for run in row.runs if name in run.figures)
            yield f"  {name:<{NAME_WIDTH}}≤ {number(bound.limit):<8}{bound.margin_percent:>5} %  of {seen}"
            yield f"    {bound.source}"
