"""Problems of a document, each with its field, value and rule, and the error that reports them.

A check returns problems as values. Only the caller that reads a file or admits an object raises an error.
"""

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

MAX_SHOWN = 80
MAX_LISTED = 8


class Absent:
    """The value of an absent field."""

    def __repr__(self) -> str:
        return "absent"


ABSENT = Absent()


class Problem(NamedTuple):
    """One rule that a document breaks. ``field`` is its path on the wire: ``spec.envelopes[0].name``."""

    field: str
    value: object
    rule: str

    def __str__(self) -> str:
        if self.value is ABSENT:
            return f"{self.field}: {self.rule}"
        return f"{self.field}: {shown(self.value)} is not allowed: {self.rule}"


class JobtreeError(Exception):
    """Every error that a user can cause or meet. The message says what is wrong, then what to do.

    ``exit_code`` is what ``kubectl runs`` ends with.
    """

    exit_code: int = 2


class InputError(JobtreeError, ValueError):
    """A refused document. ``where`` names it, ``problems`` has all its problems."""

    def __init__(self, where: str, problems: Iterable[Problem | str]) -> None:
        """Puts a single problem on the line of the document's name, and several below it."""
        self.where = where
        self.problems = tuple(problems)
        lines = [str(problem) for problem in self.problems]
        text = lines[0] if len(lines) == 1 else "".join(f"\n  {line}" for line in lines)
        super().__init__(f"{where}: {text}" if len(lines) == 1 else f"{where}:{text}")


def repeats(values: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yields each repeated value of a list, with its position."""
    previous: set[str] = set()
    for position, value in enumerate(values):
        if value in previous:
            yield position, value
        previous.add(value)


def shown(value: object) -> str:
    """Returns a value as JSON, shortened if it is long."""
    if isinstance(value, (list, tuple, dict)) and len(value) > MAX_LISTED:
        return f"a {'mapping' if isinstance(value, dict) else 'list'} of {len(value)}"
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"
