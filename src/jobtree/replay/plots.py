"""Plots as inline SVG: lines over time, and quantiles. No script, no font, nothing from elsewhere.

Colours are CSS variables of the page, so a plot follows its light or dark.
"""

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 760, 260
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 44
TICKS = 5


class Line(NamedTuple):
    name: str
    points: Sequence[tuple[float, float]]
    filled: bool = False
    dashed: bool = False


class Axis(NamedTuple):
    title: str
    logarithmic: bool = False


class Scale(NamedTuple):
    low: float
    high: float
    start: float
    end: float
    logarithmic: bool

    def at(self, value: float) -> float:
        low, high, value = (self.bend(one) for one in (self.low, self.high, value))
        part = (value - low) / (high - low) if high > low else 0.0
        return round(self.start + (self.end - self.start) * min(1.0, max(0.0, part)), 1)

    def bend(self, value: float) -> float:
        """Logarithmic, and straight around zero, where logarithms end: waits of nothing are common."""
        return math.copysign(math.log10(1 + abs(value)), value) if self.logarithmic else value


def chart(title: str, across: Axis, up: Axis, lines: Sequence[Line]) -> str:
    """A plot with axes, a grid and a legend; without points, a sentence that says so."""
    points = [point for line in lines for point in line.points]
    if not points:
        return f'<figure><figcaption>{escape(title)}</figcaption><p class="none">nothing to show</p></figure>'
    horizontal = scale([x for x, _ in points], LEFT, WIDTH - RIGHT, across)
    vertical = scale([0.0, *(y for _, y in points)], HEIGHT - BOTTOM, TOP, up)
    parts = [*grid(horizontal, vertical, across, up)]
    parts += [drawn(line, number, horizontal, vertical) for number, line in enumerate(lines)]
    legend = "".join(
        f'<li><span class="swatch c{number}"></span>{escape(line.name)}</li>'
        for number, line in enumerate(lines)
    )
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'
        f"<ul>{legend}</ul></figure>"
    )


def scale(values: Sequence[float], start: float, end: float, axis: Axis) -> Scale:
    low, high = min(values), max(values)
    if not axis.logarithmic:
        size = step(low, high)
        low, high = math.floor(low / size) * size, math.ceil(high / size) * size
    return Scale(low, high if high > low else low + 1, start, end, axis.logarithmic)


def step(low: float, high: float) -> float:
    """A round distance between ticks: 1, 2 or 5 times a power of ten."""
    rough = (high - low) / TICKS or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next(one * power for one in (1, 2, 5, 10) if one * power >= rough * 0.999)


def ticks(known: Scale) -> list[float]:
    if not known.logarithmic:
        size = step(known.low, known.high)
        count = round((known.high - known.low) / size)
        return [known.low + number * size for number in range(count + 1)]
    powers = [10.0**power for power in range(10)]
    both = [*(-one for one in reversed(powers)), 0.0, *powers]
    return [value for value in both if known.low <= value <= known.high]


def grid(horizontal: Scale, vertical: Scale, across: Axis, up: Axis) -> list[str]:
    bottom, parts = HEIGHT - BOTTOM, []
    for value in ticks(vertical):
        y = vertical.at(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{label(value)}</text>')
    for value in ticks(horizontal):
        x = horizontal.at(value)
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{TOP}" y2="{bottom}"/>')
        parts.append(f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{label(value)}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(across.title)}</text>')
    turn = f"rotate(-90 14 {(TOP + bottom) / 2})"
    parts.append(f'<text x="14" y="{(TOP + bottom) / 2}" transform="{turn}" text-anchor="middle">')
    return [*parts, f"{escape(up.title)}</text>"]


def label(value: float) -> str:
    """Short, and without needless zeros: 1500 is ``1.5k``."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def drawn(line: Line, number: int, horizontal: Scale, vertical: Scale) -> str:
    path = " ".join(f"{horizontal.at(x)},{vertical.at(y)}" for x, y in line.points)
    if not path:
        return ""
    name = f"<title>{escape(line.name)}</title>"
    if line.filled:
        floor = vertical.at(0.0)
        first, last = horizontal.at(line.points[0][0]), horizontal.at(line.points[-1][0])
        return (
            f'<polygon class="area c{number}" points="{first},{floor} {path} {last},{floor}">{name}</polygon>'
        )
    dashes = ' stroke-dasharray="6 4"' if line.dashed else ""
    return f'<polyline class="line c{number}"{dashes} points="{path}">{name}</polyline>'
