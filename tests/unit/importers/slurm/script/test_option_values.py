import pytest

from jobtree.api.schema.problems import InputError
from jobtree.importers.slurm.script.batch_script import OptionSetting
from jobtree.importers.slurm.script.option_values import (
    Array,
    duration_ms,
    node_range,
    parse_array,
    parse_count,
    parse_size,
)

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR


def setting(name: str, value: str) -> OptionSetting:
    return OptionSetting(value, "job.sh, line 2", name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90", 90 * MINUTE),
        ("90:30", 90 * MINUTE + 30_000),
        ("1:30:15", HOUR + 30 * MINUTE + 15_000),
        ("36:00:00", 36 * HOUR),
        ("2-12", 2 * DAY + 12 * HOUR),
        ("2-12:30", 2 * DAY + 12 * HOUR + 30 * MINUTE),
        ("2-12:30:15", 2 * DAY + 12 * HOUR + 30 * MINUTE + 15_000),
        ("7-0", 7 * DAY),
        ("0", None),
        ("UNLIMITED", None),
        ("infinite", None),
    ],
)
def test_duration_is_read_in_all_formats(text: str, expected: int | None) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize(
    "text", ["", "tomorrow", "1h", "1:2:3:4", "-5", "1-", "1.5", "٣", "2-12:30:15:9", "9" * 40]
)
def test_wrong_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be M, M:S, H:M:S"):
        duration_ms(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0-3", Array([0, 1, 2, 3], 0)),
        ("0-15%4", Array(list(range(16)), 4)),
        ("1,3,7", Array([1, 3, 7], 0)),
        ("0-30:10", Array([0, 10, 20, 30], 0)),
        ("5,1-3,2%2", Array([1, 2, 3, 5], 2)),
        ("0-4095", Array(list(range(4096)), 0)),
    ],
)
def test_array_is_read(text: str, expected: Array) -> None:
    assert parse_array(setting("array", text)) == expected


@pytest.mark.parametrize(
    "text",
    ["", "a", "3-1", "1-5:0", "1%0", "1%x", "1,,2", "0-4096", "0-999999999", "1-2-3", "0-4000,5000-9000"],
)
def test_wrong_array_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^job\.sh, line 2: --array"):
        parse_array(setting("array", text))


@pytest.mark.parametrize(
    ("text", "expected"), [("64G", (64, "Gi")), ("512", (512, "Mi")), ("1t", (1, "Ti")), ("8GB", (8, "Gi"))]
)
def test_memory_size_is_read(text: str, expected: tuple[int, str]) -> None:
    assert parse_size(setting("mem", text)) == expected


def test_counts_and_node_ranges_are_read() -> None:
    assert parse_count(setting("ntasks", "16")) == 16
    assert node_range(setting("nodes", "2-4")) == (2, 4)
    for bad in ("0", "-1", "x", "1e3", "", "²", "9" * 20):
        with pytest.raises(InputError, match="must be a whole number from 1 to 1000000"):
            parse_count(setting("ntasks", bad))
    with pytest.raises(InputError, match="ends before it begins"):
        node_range(setting("nodes", "4-2"))
    with pytest.raises(InputError, match="must be a size such as"):
        parse_size(setting("mem", "lots"))
