"""Checks where the clock of a simulation may be moved."""

from jobtree.api.schema.quantities import format_time, parse_duration, parse_time
from jobtree.client.errors import ArgumentError

LATEST = "2999-12-31T00:00:00Z"


def instant_after(now: int, duration: str | None, until: str | None) -> int:
    """Returns the instant to stop at. Raises ArgumentError if it is invalid, in the past or too late."""
    try:
        at = now + parse_duration(duration) if duration is not None else parse_time(until or "")
    except ValueError as error:
        raise ArgumentError(str(error)) from None
    if at < now:
        raise ArgumentError(f"the clock is already at {format_time(now)} and cannot move back")
    if at > parse_time(LATEST):
        raise ArgumentError(f"the clock cannot move past {LATEST}")
    return at
