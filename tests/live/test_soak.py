"""Which hours ``make soak-live`` plays, and what it says of one that went wrong. The hours have tests."""

import argparse
from itertools import chain, islice
from pathlib import Path

import pytest

from tests.live import soak
from tests.live.eventful import SOUND
from tests.live.soak import Soak, spans


@pytest.mark.parametrize(
    ("text", "first"),
    [("none", []), ("5,8", [5, 8]), ("2-4,9", [2, 3, 4, 9]), ("37-", [37, 38, 39, 40])],
)
def test_numbers_are_chosen(text: str, first: list[int]) -> None:
    assert list(islice(chain(*spans(text)), 4)) == first


@pytest.mark.parametrize("text", ["", "x", "-5", "5-x", "5,,8", "5 8"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="write 5, 20-30 or 90-"):
        spans(text)


def test_an_hour_that_goes_wrong_is_told_and_the_next_one_is_played(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def hour(_: object, __: object, number: int) -> bool:
        assert number != 5, "the outcome differs"
        return number < 7

    class Sound:
        def audit(self) -> str:
            return SOUND

    monkeypatch.setattr(soak, "REPORTS", tmp_path)
    monkeypatch.setattr(Soak, "ground", lambda _: (Sound(), {}))
    played = Soak()
    assert [played.play("killed after write", number, hour) for number in (4, 5, 6, 7)] == [True] * 3 + [
        False
    ]
    assert played.wrong == {"killed after write": [5]}
    assert "the outcome differs" in (tmp_path / "killed-after-write-5.txt").read_text()
    said = capsys.readouterr().out
    assert "killed after write 5: WENT WRONG" in said
    assert "killed after write 7: the hour has no such write" in said
