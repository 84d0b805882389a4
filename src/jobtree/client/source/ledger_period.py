"""Parses a period of the ledger: ``--since`` and ``--until``."""

import re
from typing import NamedTuple

from jobtree.api.schema.quantities import parse_time
from jobtree.client.errors import ArgumentError

_DAY = re.compile(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
FOREVER = 1 << 60


class Period(NamedTuple):
    """A half-open interval; without a start or an end it is unbounded on that side."""

    since: int = -FOREVER
    until: int = FOREVER

    def overlaps(self, start: int, end: int | None) -> bool:
        return start < self.until and (end is None or end > self.since or start == end >= self.since)

    def clip(self, start: int, end: int) -> tuple[int, int]:
        """Returns the part of an interval that is in the period."""
        first = max(start, self.since)
        return first, max(first, min(end, self.until))


ALWAYS = Period()


def parse_period(
    since: str | None, until: str | None, since_name: str = "--since ", until_name: str = "--until "
) -> Period:
    """Raises ArgumentError for an invalid time, or if the end is not later than the start.

    The names stand before the values in messages.
    """
    period = Period(
        -FOREVER if since is None else _instant(since_name, since),
        FOREVER if until is None else _instant(until_name, until),
    )
    if period.until <= period.since:
        raise ArgumentError(f"{until_name}{until} must be later than {since_name}{since}")
    return period


def _instant(option: str, text: str) -> int:
    try:
        return parse_time(f"{text}T00:00:00Z" if _DAY.match(text) else text)
    except ValueError:
        raise ArgumentError(
            f"{option}{text}: must be a day such as 2026-02-01, or a time such as 2026-02-01T09:00:00Z",
        ) from None
