"""How figures and names are said to people."""

import difflib
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

_NUMBERED = re.compile(r"^(?P<stem>.*?)(?P<number>[0-9]+)$")
_SECONDS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def age(milliseconds: int) -> str:
    """Two units are enough: ``45s``, ``5m10s``, ``2h05m``, ``3d04h``."""
    rest = max(0, milliseconds) // 1000
    for (unit, size), (below, part) in pairwise(_SECONDS):
        if rest >= size:
            return f"{rest // size}{unit}{rest % size // part:02d}{below}"
    return f"{rest}s"


def counted_noun(number: int | str, noun: str) -> str:
    """``1 GPU``, ``8 GPUs``."""
    return f"{number} {noun}" if str(number) == "1" else f"{number} {noun}s"


def joined_list(words: Sequence[str], *, most: int = 4) -> str:
    """``a, b and c``; of many, the first few and how many more."""
    if len(words) > most:
        words = [*words[: most - 1], f"{len(words) - most + 1} more"]
    return " and ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else "".join(words)


def ranges(names: Iterable[str]) -> str:
    """Names with their numbers run together: ``b01-b08, c02``; ``gpu-a-[01-08]`` where stems have dashes."""
    runs: list[list[str]] = []
    for name in sorted(names):
        if runs and follows(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(_run(run[0], run[-1]) for run in runs)


def follows(first: str, second: str) -> bool:
    """Whether the second name is the first with the next number, written just as wide."""
    one, two = _NUMBERED.match(first), _NUMBERED.match(second)
    return (
        one is not None
        and two is not None
        and one["stem"] == two["stem"]
        and len(one["number"]) == len(two["number"])
        and int(one["number"]) + 1 == int(two["number"])
    )


def _run(first: str, last: str) -> str:
    if first == last:
        return first
    found = _NUMBERED.match(first)
    stem = found["stem"] if found else ""
    return f"{stem}[{first[len(stem) :]}-{last[len(stem) :]}]" if "-" in stem else f"{first}-{last}"


def suggestion(word: str, known: Iterable[str]) -> str:
    """``did you mean train?``, or nothing where nothing is near."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {near[0]}?" if near else ""
