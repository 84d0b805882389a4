"""Formats figures, names and lists for people."""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

_NUMBERED = re.compile(r"^(?P<stem>.*?)(?P<number>[0-9]+)$")
_SECONDS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def age(milliseconds: int) -> str:
    """Returns a duration in at most two units: ``45s``, ``5m10s``, ``2h05m``, ``3d04h``."""
    rest = max(0, milliseconds) // 1000
    for (unit, size), (below, part) in pairwise(_SECONDS):
        if rest >= size:
            return f"{rest // size}{unit}{rest % size // part:02d}{below}"
    return f"{rest}s"


def counted_noun(number: int | str, noun: str) -> str:
    """Returns a number with its noun: ``1 GPU``, ``8 GPUs``."""
    return f"{number} {noun}" if str(number) == "1" else f"{number} {noun}s"


def joined_list(words: Sequence[str], *, most: int = 4) -> str:
    """Returns ``a, b and c``; of a long list, the first words and the number of the others."""
    if len(words) > most:
        words = [*words[: most - 1], f"{len(words) - most + 1} more"]
    return " and ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else "".join(words)


def ranges(names: Iterable[str]) -> str:
    """Joins names with consecutive numbers: ``b01-b08, c02``; ``gpu-a-[01-08]`` if stems have dashes."""
    series: list[list[str]] = []
    for name in sorted(names):
        if series and follows(series[-1][-1], name):
            series[-1].append(name)
        else:
            series.append([name])
    return ", ".join(_range(names[0], names[-1]) for names in series)


def follows(first: str, second: str) -> bool:
    """Whether the second name is the first with the next number, with the same number of digits."""
    before, after = _NUMBERED.match(first), _NUMBERED.match(second)
    return (
        before is not None
        and after is not None
        and before["stem"] == after["stem"]
        and len(before["number"]) == len(after["number"])
        and int(before["number"]) + 1 == int(after["number"])
    )


def _range(first: str, last: str) -> str:
    if first == last:
        return first
    numbered = _NUMBERED.match(first)
    stem = numbered["stem"] if numbered else ""
    return f"{stem}[{first[len(stem) :]}-{last[len(stem) :]}]" if "-" in stem else f"{first}-{last}"
