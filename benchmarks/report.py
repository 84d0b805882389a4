"""The report: a table for people, JSON for programs."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from benchmarks.bars import Bar
from benchmarks.machine import Machine

NAME_WIDTH = 42


class Figure(msgspec.Struct, frozen=True):
    name: str
    value: float
    unit: str
    bar: Bar | None = None

    @property
    def verdict(self) -> str:
        if self.bar is None:
            return ""
        return "pass" if self.bar.holds(self.value) else "MISS"


class Section(msgspec.Struct, frozen=True):
    title: str
    figures: tuple[Figure, ...]


def missed(sections: Iterable[Section]) -> list[str]:
    return [
        f"{section.title}: {figure.name}"
        for section in sections
        for figure in section.figures
        if figure.verdict == "MISS"
    ]


def table(section: Section) -> str:
    """One section in aligned columns: name, value, bar, verdict."""
    lines = ["", section.title]
    for figure in section.figures:
        bar = f"≤ {_number(figure.bar.limit)}" if figure.bar else ""
        value = f"{_number(figure.value):>10} {figure.unit:<4}"
        lines.append(f"  {figure.name:<{NAME_WIDTH}}{value}  {bar:<9}{figure.verdict}".rstrip())
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.3g}"


def write_json(path: Path, facts: Machine, others_percent: int, sections: Sequence[Section]) -> None:
    content = {
        "machine": facts,
        "othersPercent": others_percent,
        "figures": [
            {
                "section": section.title,
                "name": figure.name,
                "value": figure.value,
                "unit": figure.unit,
                "limit": figure.bar.limit if figure.bar else None,
                "verdict": figure.verdict,
            }
            for section in sections
            for figure in section.figures
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")
