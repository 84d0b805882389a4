import pytest

from jobtree.messages.wording import age, counted_noun, joined_list, ranges


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (0, "0s"),
        (59, "59s"),
        (60, "1m00s"),
        (310, "5m10s"),
        (3_600, "1h00m"),
        (7_500, "2h05m"),
        (86_399, "23h59m"),
        (273_600, "3d04h"),
    ],
)
def test_age_has_two_units(seconds: int, text: str) -> None:
    assert age(seconds * 1000) == text


def test_counted_noun_has_a_plural() -> None:
    assert (counted_noun(1, "GPU"), counted_noun(0, "GPU"), counted_noun("1.5", "GPU-hour")) == (
        "1 GPU",
        "0 GPUs",
        "1.5 GPU-hours",
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b"], "a and b"),
        (["a", "b", "c", "d"], "a, b, c and d"),
        (["a", "b", "c", "d", "e"], "a, b, c and 2 more"),
    ],
)
def test_joined_list_shortens_long_lists(words: list[str], text: str) -> None:
    assert joined_list(words) == text


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["b08", "b07", "b06"], "b06-b08"),
        (["a01", "a03"], "a01, a03"),
        (["a9", "a10"], "a10, a9"),
        (["gpu-a-01", "gpu-a-02", "gpu-b-01"], "gpu-a-[01-02], gpu-b-01"),
        (["east", "west"], "east, west"),
        (["n1", "m2"], "m2, n1"),
    ],
)
def test_ranges_join_consecutive_names(names: list[str], text: str) -> None:
    assert ranges(names) == text
