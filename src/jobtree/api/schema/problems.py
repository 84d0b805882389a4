"""What is wrong with a document: the field, the value, the rule. One line for each thing that is wrong.

A problem is a value; only the door (reading a file, admitting an object) turns problems into an error.
"""

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

MAX_SHOWN = 80
MAX_LISTED = 8


class Absent:
    """The value of a field that is not there."""

    def __repr__(self) -> str:
        return "absent"


ABSENT = Absent()


class Problem(NamedTuple):
    """One rule that a document breaks. ``field`` is spelled as on the wire: ``spec.envelopes[0].name``."""

    field: str
    value: object
    rule: str

    def __str__(self) -> str:
        if self.value is ABSENT:
            return f"{self.field}: {self.rule}"
        return f"{self.field}: {shown(self.value)} is not allowed: {self.rule}"


class InputError(ValueError):
    """A document that is refused. ``where`` names it, ``problems`` says why, all of them at once."""

    def __init__(self, where: str, problems: Iterable[Problem | str]) -> None:
        """Lay out one problem on the line of the document's name, several below it."""
        self.where = where
        self.problems = tuple(problems)
        lines = [str(problem) for problem in self.problems]
        text = lines[0] if len(lines) == 1 else "".join(f"\n  {line}" for line in lines)
        super().__init__(f"{where}: {text}" if len(lines) == 1 else f"{where}:{text}")


def repeats(values: Iterable[str]) -> Iterator[tuple[int, str]]:
    """The values that stood in a list before, with their positions."""
    seen: set[str] = set()
    for position, value in enumerate(values):
        if value in seen:
            yield position, value
        seen.add(value)


def shown(value: object) -> str:
    """A value as it would stand in the document, if that is short."""
    if isinstance(value, (list, tuple, dict)) and len(value) > MAX_LISTED:
        return f"a {'mapping' if isinstance(value, dict) else 'list'} of {len(value)}"
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"
