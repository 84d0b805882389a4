"""Converts durations, instants, decimals and slots from text to integers and back.

Time is in milliseconds since the epoch, charge in thousandths of a GPU, slots are bit masks per node. No
float is used, so nothing is rounded twice.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from jobtree.api.schema.scalars import DURATION_PATTERN, TIME_PATTERN

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
MILLI = 1_000
MILLI_PLACES = 3
MICRO = 1_000_000
MICRO_PLACES = 6

_DURATION = re.compile(DURATION_PATTERN)
_TIME = re.compile(TIME_PATTERN)
_UNITS = (("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND), ("ms", 1))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SLOTS = re.compile(r"^(?P<node>.+)#(?P<first>[0-9]+)(?:-(?P<last>[0-9]+))?$")


def parse_duration(text: str) -> int:
    """Returns a duration such as ``"1h30m"`` in milliseconds. Raises ValueError."""
    match = _DURATION.match(text)
    if not match or not text:
        raise ValueError(f"{text!r} is not a duration such as 30m, 1h30m, 12h or 7d")
    parts = match.groups()
    return sum(
        int(part[: -len(unit)]) * size for part, (unit, size) in zip(parts, _UNITS, strict=True) if part
    )


def format_duration(milliseconds: int) -> str:
    """Returns the shortest exact text: ``"1h30m"`` for 5400000."""
    if milliseconds == 0:
        return "0s"
    sign, rest = ("-", -milliseconds) if milliseconds < 0 else ("", milliseconds)
    out = []
    for unit, size in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            out.append(f"{count}{unit}")
    return sign + "".join(out)


def parse_time(text: str) -> int:
    """Returns an RFC 3339 time in milliseconds since the epoch. Raises ValueError."""
    if not _TIME.match(text):
        raise ValueError(f"{text!r} is not an RFC 3339 time such as 2026-01-05T09:00:00Z")
    instant = datetime.fromisoformat(text)
    return (instant - _EPOCH) // timedelta(milliseconds=1)


def format_time(milliseconds: int) -> str:
    """Returns an RFC 3339 time in UTC, with milliseconds unless they are 0."""
    instant = _EPOCH + timedelta(milliseconds=milliseconds)
    return instant.isoformat(timespec="milliseconds" if milliseconds % SECOND else "seconds").replace(
        "+00:00", "Z"
    )


def parse_milli(text: str) -> int:
    """Returns a decimal with at most three places in thousandths: 250 for ``"0.25"``. Raises ValueError."""
    whole, _, fraction = text.partition(".")
    is_decimal = whole.isdecimal() and (not fraction or fraction.isdecimal())
    if not is_decimal or len(fraction.rstrip("0")) > MILLI_PLACES:
        raise ValueError(f"{text!r} is not a decimal with at most three places, such as 0.25")
    return int(whole) * MILLI + int(fraction[:MILLI_PLACES].ljust(MILLI_PLACES, "0"))


def format_milli(thousandths: int) -> str:
    """Returns thousandths as a decimal: ``"0.25"`` for 250, ``"8"`` for 8000."""
    sign, rest = ("-", -thousandths) if thousandths < 0 else ("", thousandths)
    whole, fraction = divmod(rest, MILLI)
    return sign + str(whole) + (f".{fraction:03d}".rstrip("0") if fraction else "")


def parse_micro(text: str) -> int:
    """Returns a decimal with at most six places in millionths: 250000 for ``"0.25"``. Raises ValueError."""
    whole, _, fraction = text.partition(".")
    is_decimal = whole.isdecimal() and (not fraction or fraction.isdecimal())
    if not is_decimal or len(fraction) > MICRO_PLACES:
        raise ValueError(f"{text!r} is not a decimal with at most six places, such as 0.25")
    return int(whole) * MICRO + int(fraction.ljust(MICRO_PLACES, "0"))


def format_micro(millionths: int) -> str:
    """Returns millionths as a decimal: ``"0.25"`` for 250000.

    A thousandth of a GPU times a millisecond is a millionth of a GPU-second.
    """
    whole, fraction = divmod(millionths, MICRO)
    return str(whole) + (f".{fraction:06d}".rstrip("0") if fraction else "")


def parse_slots(ranges: Iterable[str]) -> dict[str, int]:
    """Returns ranges such as ``["a#0-7", "b#3"]`` as one bit mask per node, in the same order."""
    masks: dict[str, int] = {}
    for text in ranges:
        match = _SLOTS.match(text)
        if not match:
            raise ValueError(f"{text!r} is not a slot such as gpu-a-01#3 or gpu-a-01#0-7")
        first = int(match["first"])
        last = int(match["last"] or first)
        if last < first:
            raise ValueError(f"{text!r} ends before it begins")
        mask = (1 << (last + 1)) - (1 << first)
        masks[match["node"]] = masks.get(match["node"], 0) | mask
    return masks


def format_slots(node: str, mask: int) -> list[str]:
    """Returns the ranges of a node's mask: ``a#0-1`` and ``a#3`` for ``a`` and 0b1011."""
    ranges = []
    first = 0
    while mask >> first:
        if not mask >> first & 1:
            first += 1
            continue
        last = first
        while mask >> (last + 1) & 1:
            last += 1
        ranges.append(f"{node}#{first}" if first == last else f"{node}#{first}-{last}")
        first = last + 1
    return ranges
