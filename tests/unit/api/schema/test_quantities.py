import re
from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st

from jobtree.api.schema.quantities import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    format_duration,
    format_milli,
    format_slots,
    format_time,
    parse_duration,
    parse_milli,
    parse_slots,
    parse_time,
)
from jobtree.api.schema.scalars import TIME_PATTERN

instants = st.datetimes(datetime(1000, 1, 1), datetime(2999, 12, 31))  # noqa: DTZ001  zones are drawn apart


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("30m", 30 * MINUTE),
        ("1h30m", 90 * MINUTE),
        ("7d", 7 * DAY),
        ("1d2h3m4s5ms", DAY + 2 * HOUR + 3 * MINUTE + 4 * SECOND + 5),
        ("0s", 0),
        ("90s", 90 * SECOND),
    ],
)
def test_duration_is_parsed_to_milliseconds(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize("text", ["", "5", "m", "5m1h", "-5m", "1.5h", "5 m", "5m\n", "\u0665m"])
def test_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration such as"):
        parse_duration(text)


@given(st.integers(0, 10_000 * DAY))
def test_formatted_duration_is_parsed_back(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds)) == milliseconds


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.5Z", 500),
        ("1970-01-01T00:00:00.123456789Z", 123),
        ("1970-01-01T02:00:00+02:00", 0),
        ("2024-02-29T00:00:00Z", 1_709_164_800_000),
    ],
)
def test_time_is_parsed_to_milliseconds(text: str, milliseconds: int) -> None:
    assert parse_time(text) == milliseconds


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-05",
        "2026-01-05T09:00:00",
        "2026-01-05 09:00:00Z",
        "2026-13-05T09:00:00Z",
        "2026-02-29T09:00:00Z",
        "2100-02-29T09:00:00Z",
        "2026-04-31T09:00:00Z",
        "2026-01-05T24:00:00Z",
        "2026-01-05T09:00:60Z",
        "2026-01-05T09:00:00+25:00",
        "2026-01-05T09:00:00Z\n",
        "\u0662026-01-05T09:00:00Z",
    ],
)
def test_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an RFC 3339 time"):
        parse_time(text)


@given(instants)
def test_formatted_time_is_parsed_back(instant: datetime) -> None:
    text = instant.isoformat(timespec="milliseconds") + "Z"
    assert parse_time(format_time(parse_time(text))) == parse_time(text)


@given(st.integers(1000, 2999), st.integers(0, 13), st.integers(0, 32))
def test_time_pattern_matches_exactly_the_days_that_exist(year: int, month: int, day: int) -> None:
    text = f"{year:04d}-{month:02d}-{day:02d}T00:00:00Z"
    try:
        datetime(year, month, day, tzinfo=UTC)
    except ValueError:
        assert not re.search(TIME_PATTERN, text)
    else:
        assert re.search(TIME_PATTERN, text)


@pytest.mark.parametrize(
    ("text", "milli"), [("0.25", 250), ("8", 8000), ("1.5", 1500), ("0.1000", 100), ("3.", 3000)]
)
def test_decimal_is_parsed_to_thousandths(text: str, milli: int) -> None:
    assert parse_milli(text) == milli


@pytest.mark.parametrize("text", ["", ".5", "-1", "1.2345", "1e3", "one", "1.x"])
def test_invalid_decimal_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a decimal"):
        parse_milli(text)


@given(st.integers(0, 10**12))
def test_formatted_decimal_is_parsed_back(thousandths: int) -> None:
    assert parse_milli(format_milli(thousandths)) == thousandths


def test_negative_values_are_formatted_with_a_sign() -> None:
    assert (format_milli(-250), format_duration(-90_000), format_duration(0)) == ("-0.25", "-1m30s", "0s")


def test_slots_are_parsed_to_masks_and_formatted_as_ranges() -> None:
    assert parse_slots(["a#0-7", "b#3", "a#9"]) == {"a": 0b10_1111_1111, "b": 0b1000}
    assert format_slots("a", 0b1011) == ["a#0-1", "a#3"]
    assert format_slots("a", 0) == []


@pytest.mark.parametrize("text", ["a", "a#", "#3", "a#x", "a#3-", "a#-3", "a#5-3"])
def test_invalid_slot_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a slot|ends before it begins"):
        parse_slots([text])


@given(
    st.dictionaries(st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True), st.integers(1, 2**16 - 1), max_size=4)
)
def test_formatted_slots_are_parsed_back(masks: dict[str, int]) -> None:
    ranges = [text for node, mask in masks.items() for text in format_slots(node, mask)]
    assert parse_slots(ranges) == masks
