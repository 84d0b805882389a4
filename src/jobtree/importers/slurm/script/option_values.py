"""Reads values of Slurm options: times, sizes, counts, ranges and arrays."""

import re
from typing import Final, NamedTuple

from jobtree.api.schema.problems import InputError
from jobtree.api.schema.quantities import DAY, HOUR, MINUTE, SECOND
from jobtree.importers.slurm.script.batch_script import OptionSetting

MAX_COUNT: Final = 1_000_000
MAX_ELEMENTS: Final = 4096  # 64 × 64: the most that a job tree can have

_DAYS: Final = re.compile(
    r"(?P<d>[0-9]{1,5})-(?P<h>[0-9]{1,6})(?::(?P<m>[0-9]{1,6})(?::(?P<s>[0-9]{1,6}))?)?"
)
_CLOCK: Final = re.compile(r"(?:(?:(?P<h>[0-9]{1,6}):)?(?P<m>[0-9]{1,8}):)?(?P<last>[0-9]{1,8})")
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_UNLIMITED: Final = ("infinite", "unlimited", "-1")
_SIZE: Final = re.compile(r"(?P<number>[0-9]{1,12})(?P<unit>[kmgt]?)b?", re.IGNORECASE)
_UNITS: Final = {"": "Mi", "k": "Ki", "m": "Mi", "g": "Gi", "t": "Ti"}
_SPAN: Final = re.compile(r"(?P<first>[0-9]{1,9})(?:-(?P<last>[0-9]{1,9})(?::(?P<step>[0-9]{1,9}))?)?")

TIMES: Final = "M, M:S, H:M:S, D-H, D-H:M or D-H:M:S"


class Array(NamedTuple):
    """The numbers of a job array in ascending order, and how many may run at once (0: all)."""

    numbers: list[int]
    at_once: int


def refuse(setting: OptionSetting, rule: str) -> InputError:
    """The error for a setting that breaks a rule."""
    return InputError(setting.where, [f"{setting} is not allowed: {rule}"])


def duration_ms(text: str) -> int | None:
    """A time limit in milliseconds, or None for no limit. Raises ValueError."""
    if text.strip().lower() in _UNLIMITED:
        return None
    if match := _DAYS.fullmatch(text.strip()):
        days, hours, minutes, seconds = (int(part or 0) for part in match.group("d", "h", "m", "s"))
        return (days * DAY + hours * HOUR + minutes * MINUTE + seconds * SECOND) or None
    match = _CLOCK.fullmatch(text.strip())
    if not match:
        raise ValueError(f"must be {TIMES}")
    if match["m"] is None:
        return int(match["last"]) * MINUTE or None
    hours, minutes, seconds = (int(part or 0) for part in match.group("h", "m", "last"))
    return (hours * HOUR + minutes * MINUTE + seconds * SECOND) or None


def time_limit(setting: OptionSetting) -> int | None:
    """The value of --time in milliseconds, or None for zero and UNLIMITED. Raises InputError."""
    try:
        return duration_ms(setting.value)
    except ValueError as broken:
        raise refuse(setting, str(broken)) from None


def parse_count(setting: OptionSetting, *, least: int = 1) -> int:
    """A whole number. Raises InputError."""
    text = setting.value.strip()
    if not _NUMBER.fullmatch(text) or not least <= int(text) <= MAX_COUNT:
        raise refuse(setting, f"must be a whole number from {least} to {MAX_COUNT}")
    return int(text)


def parse_size(setting: OptionSetting) -> tuple[int, str]:
    """An amount of memory as a number and a unit of Kubernetes. Slurm's default unit is a megabyte."""
    match = _SIZE.fullmatch(setting.value.strip())
    if not match:
        raise refuse(setting, "must be a size such as 64G, 512M or 4096 (megabytes)")
    return int(match["number"]), _UNITS[match["unit"].lower()]


def node_range(setting: OptionSetting) -> tuple[int, int]:
    """The least and the most nodes of ``4`` or ``2-4``."""
    first, dash, last = setting.value.partition("-")
    least = parse_count(setting._replace(value=first))
    most = parse_count(setting._replace(value=last)) if dash else least
    if most < least:
        raise refuse(setting, "the range ends before it begins")
    return least, most


def parse_array(setting: OptionSetting) -> Array:
    """``0-15%4``, ``1,3,7``, ``0-30:10``. Raises InputError."""
    spans, percent, limit = setting.value.partition("%")
    at_once = parse_count(setting._replace(value=limit)) if percent else 0
    numbers: set[int] = set()
    for span in spans.split(","):
        match = _SPAN.fullmatch(span.strip())
        if not match:
            raise refuse(
                setting,
                "must be numbers and ranges such as 0-15, 1,3,7 or 0-30:10, with %4 at the end for a limit",
            )
        first, step = int(match["first"]), int(match["step"] or 1)
        last = int(match["last"] or first)
        if last < first or not step:
            raise refuse(setting, "a range must not end before it begins, and its step must be 1 or more")
        if (last - first) // step >= MAX_ELEMENTS:
            raise refuse(setting, _too_many((last - first) // step + 1))
        numbers.update(range(first, last + 1, step))
        if len(numbers) > MAX_ELEMENTS:
            raise refuse(setting, _too_many(len(numbers)))
    return Array(sorted(numbers), at_once)


def _too_many(count: int) -> str:
    return f"{count} elements are more than {MAX_ELEMENTS}: split the array"
