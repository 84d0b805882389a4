"""Each write of a history is refused, fails, or gets no answer: the outcome is the same."""

import pytest

from jobtree.manager.controllers import pod_reconciler
from tests.unit.manager.histories import FAILURE, FAULTS, RESOLUTION, TREE, History, play_with_fault, remains
from tests.unit.manager.memory_cluster import Fault

STRIDES = {"busy": 7, "unwell": 7}  # the manager sends the same write again, so one in seven is enough


@pytest.fixture(autouse=True)
def _retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes of pods are retried at once, since the clock of these tests does not advance by itself."""
    monkeypatch.setattr(pod_reconciler, "RETRY_MS", 0)


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("history", [RESOLUTION, FAILURE, TREE], ids=["resolution", "failure", "tree"])
def test_outcome_is_the_same_when_any_write_meets_a_fault(history: History, kind: str) -> None:
    undisturbed = play_with_fault(history)
    expected = remains(undisturbed)
    for number in range(1, undisturbed.writes + 1, STRIDES.get(kind, 1)):
        server = play_with_fault(history, Fault(number, *FAULTS[kind]))
        assert remains(server) == expected, f"{kind} at write {number} of {undisturbed.writes}"
