"""``make soak-live``: the numbers that it plays, and its report of a failed workload."""

import argparse
from itertools import chain, islice
from pathlib import Path

import pytest

from tests.live.faults import soak
from tests.live.faults.fault_cluster import AUDIT_OK
from tests.live.faults.soak import Soak, spans


@pytest.mark.parametrize(
    ("text", "first"),
    [("none", []), ("5,8", [5, 8]), ("2-4,9", [2, 3, 4, 9]), ("37-", [37, 38, 39, 40])],
)
def test_spans_lists_the_chosen_numbers(text: str, first: list[int]) -> None:
    assert list(islice(chain(*spans(text)), 4)) == first


@pytest.mark.parametrize("text", ["", "x", "-5", "5-x", "5,,8", "5 8"])
def test_spans_refuses_invalid_text(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="write 5, 20-30 or 90-"):
        spans(text)


def test_soak_reports_a_failed_workload_and_continues(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def play(_: object, __: object, number: int) -> bool:
        assert number != 5, "the outcome differs"
        return number < 7

    class HealthyCluster:
        def audit(self) -> str:
            return AUDIT_OK

    monkeypatch.setattr(soak, "REPORTS", tmp_path)
    monkeypatch.setattr(Soak, "cluster", lambda _: (HealthyCluster(), {}))
    tested = Soak()
    assert [tested.play("killed after write", number, play) for number in (4, 5, 6, 7)] == [True] * 3 + [
        False
    ]
    assert tested.failed == {"killed after write": [5]}
    assert "the outcome differs" in (tmp_path / "killed-after-write-5.txt").read_text()
    output = capsys.readouterr().out
    assert "killed after write 5: FAILED" in output
    assert "killed after write 7: the workload has no such write" in output
