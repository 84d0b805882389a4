"""Draws plots as inline SVG, without scripts, fonts or other files: lines over time, and quantiles.

Colours are CSS variables of the page, so a plot follows its light or dark.
"""

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 760, 260
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 44
TICKS = 5
LEGEND_ROW = 18
LEGEND_COLUMNS = 4
COLOURS = 7
TIMES = {
    1: "1s",
    10: "10s",
    60: "1m",
    600: "10m",
    3_600: "1h",
    21_600: "6h",
    86_400: "1d",
    604_800: "1w",
    2_592_000: "30d",
    31_536_000: "1y",
}
INK = """
:root { --ink: #1c2733; --paper: #ffffff; --soft: #5b6b7b; --grid: #dde3ea;
  --c0: #2b6cb0; --c1: #718096; --c2: #c05621; --c3: #2f855a; --c4: #805ad5; --c5: #b83280; --c6: #b7791f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e2e8f0; --paper: #12181f; --soft: #94a3b3;
  --grid: #2a3542; --c0: #63b3ed; --c1: #a0aec0; --c2: #f6ad55; --c3: #68d391; --c4: #b794f4;
  --c5: #f687b3; --c6: #f6e05e; } }
svg text { font: 11px system-ui, sans-serif; fill: var(--soft); } .grid { stroke: var(--grid); }
.line { fill: none; stroke-width: 1.8; } .area { stroke: none; opacity: .45; }
"""


class PlotLine(NamedTuple):
    name: str
    points: Sequence[tuple[float, float]]
    filled: bool = False
    dashed: bool = False


class Axis(NamedTuple):
    title: str
    logarithmic: bool = False  # and its values are seconds


class Scale(NamedTuple):
    low: float
    high: float
    start: float
    end: float
    logarithmic: bool

    def at(self, value: float) -> float:
        low, high, value = (self.bend(number) for number in (self.low, self.high, value))
        part = (value - low) / (high - low) if high > low else 0.0
        return round(self.start + (self.end - self.start) * min(1.0, max(0.0, part)), 1)

    def bend(self, value: float) -> float:
        """Returns a logarithmic value that is linear around zero, because many waits are zero."""
        return math.copysign(math.log10(1 + abs(value)), value) if self.logarithmic else value


def paint() -> str:
    """Returns the style of a line; after the last colour the first one follows."""
    rules = [INK]
    for number in range(4 * COLOURS):
        colour = f"var(--c{number % COLOURS})"
        rules.append(f".line.c{number} {{ stroke: {colour}; }} .area.c{number} {{ fill: {colour}; }}")
        rules.append(f".swatch.c{number} {{ background: {colour}; fill: {colour}; }}")
    return "\n".join(rules)


def chart(title: str, across: Axis, up: Axis, lines: Sequence[PlotLine]) -> str:
    """Returns a plot with a legend for a page; without points, a sentence."""
    inside = plotted(across, up, lines)
    if not inside:
        return f'<figure><figcaption>{escape(title)}</figcaption><p class="none">nothing to show</p></figure>'
    legend = "".join(
        f'<li><span class="swatch c{number}"></span>{escape(line.name)}</li>'
        for number, line in enumerate(lines)
    )
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{inside}</svg>'
        f"<ul>{legend}</ul></figure>"
    )


def picture(title: str, across: Axis, up: Axis, lines: Sequence[PlotLine]) -> str:
    """Returns a plot as a separate file, with its legend inside."""
    height = HEIGHT + LEGEND_ROW * -(-len(lines) // LEGEND_COLUMNS)
    legend = []
    for number, line in enumerate(lines):
        x = LEFT + number % LEGEND_COLUMNS * (WIDTH - LEFT) // LEGEND_COLUMNS
        y = HEIGHT + number // LEGEND_COLUMNS * LEGEND_ROW
        legend.append(f'<rect class="swatch c{number}" x="{x}" y="{y}" width="10" height="10"/>')
        legend.append(f'<text x="{x + 16}" y="{y + 9}">{escape(line.name)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
        f"<title>{escape(title)}</title><style>{paint()}</style>"
        f'<rect width="{WIDTH}" height="{height}" fill="var(--paper)"/>'
        f"{plotted(across, up, lines)}{''.join(legend)}</svg>\n"
    )


def plotted(across: Axis, up: Axis, lines: Sequence[PlotLine]) -> str:
    """Returns axes, grid and lines; nothing if there are no points."""
    points = [point for line in lines for point in line.points]
    if not points:
        return ""
    horizontal = scale([x for x, _ in points], LEFT, WIDTH - RIGHT, across)
    vertical = scale([0.0, *(y for _, y in points)], HEIGHT - BOTTOM, TOP, up)
    parts = [*grid(horizontal, vertical, across, up)]
    parts += [draw_line(line, number, horizontal, vertical) for number, line in enumerate(lines)]
    return "".join(parts)


def scale(values: Sequence[float], start: float, end: float, axis: Axis) -> Scale:
    low, high = min(values), max(values)
    if not axis.logarithmic:
        size = step(low, high)
        low, high = math.floor(low / size) * size, math.ceil(high / size) * size
    return Scale(low, high if high > low else low + 1, start, end, axis.logarithmic)


def step(low: float, high: float) -> float:
    """Returns a round distance between ticks: 1, 2 or 5 times a power of ten."""
    rough = (high - low) / TICKS or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)


def ticks(scale: Scale) -> list[float]:
    if not scale.logarithmic:
        size = step(scale.low, scale.high)
        count = round((scale.high - scale.low) / size)
        return [scale.low + number * size for number in range(count + 1)]
    times = [*(-float(seconds) for seconds in reversed(TIMES)), 0.0, *map(float, TIMES)]
    return [value for value in times if scale.low <= value <= scale.high]


def grid(horizontal: Scale, vertical: Scale, across: Axis, up: Axis) -> list[str]:
    bottom, parts = HEIGHT - BOTTOM, []
    for value in ticks(vertical):
        y = vertical.at(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(
            f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{tick_label(value, vertical)}</text>'
        )
    for value in ticks(horizontal):
        x = horizontal.at(value)
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{TOP}" y2="{bottom}"/>')
        label = tick_label(value, horizontal)
        parts.append(f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{label}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(across.title)}</text>')
    turn = f"rotate(-90 14 {(TOP + bottom) / 2})"
    parts.append(f'<text x="14" y="{(TOP + bottom) / 2}" transform="{turn}" text-anchor="middle">')
    return [*parts, f"{escape(up.title)}</text>"]


def tick_label(value: float, scale: Scale) -> str:
    """Returns a short label without trailing zeros: ``1.5k``, or ``-1h`` for seconds."""
    if scale.logarithmic and value:
        return f"{'-' * (value < 0)}{TIMES[round(abs(value))]}"
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def draw_line(line: PlotLine, number: int, horizontal: Scale, vertical: Scale) -> str:
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
