"""Writes the report as a table and as JSON."""

from collections.abc import Iterable, Mapping, Sequence
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


def heading() -> str:
    return line("", ("measured", "bound", "", "margin", "before", "now"))


def table(section: Section, before: Mapping[str, float]) -> str:
    """Returns the table of a section: value, bound, verdict, margin and previous value."""
    return "\n".join(
        ["", section.title, *(row(figure, before.get(figure.name)) for figure in section.figures)]
    )


def row(figure: Figure, was: float | None) -> str:
    bound = f"≤ {number(figure.bar.limit)}" if figure.bar else ""
    left = f"{margin(figure.value, figure.bar.limit)} %" if figure.bar else ""
    ratio = f"{figure.value / was:.2f} ×" if was else ""
    before = "" if was is None else number(was)
    value = f"{number(figure.value)} {figure.unit:<4}"
    return line(f"  {figure.name}", (value, bound, figure.verdict, left, before, ratio))


def line(name: str, cells: tuple[str, str, str, str, str, str]) -> str:
    value, bound, verdict, left, was, ratio = cells
    shown = f"{name:<{NAME_WIDTH + 2}}{value:>15}  {bound:<9}{verdict:<5}{left:>7}{was:>10}{ratio:>9}"
    return shown.rstrip()


def margin(value: float, limit: float) -> int:
    """Returns the unused part of a limit in percent; negative if the limit is missed.

    A limit of 0 has no parts: the margin is 0.
    """
    return round(100 * (limit - value) / limit) if limit else 0


def number(value: float) -> str:
    return f"{value:,.0f}" if round(value) >= 1000 or value == int(value) else f"{value:.3g}"


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
