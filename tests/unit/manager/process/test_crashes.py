"""A manager is killed after a write: the next manager continues, and the outcome is the same.

Here after some writes of each history; ``tests/crash`` kills it after every write.
"""

import pytest

from jobtree.core.runs import run_allocation
from tests.unit.manager.histories import (
    HISTORIES,
    play_with_crash,
    remains,
    spread,
    start_of_stages_with_crash,
)
from tests.unit.manager.memory_cluster import Manager


@pytest.mark.parametrize("name", HISTORIES)
def test_outcome_is_the_same_when_the_manager_dies_after_some_write(name: str) -> None:
    undisturbed, writes = play_with_crash(HISTORIES[name])
    expected = remains(undisturbed)
    for number in spread(writes):
        server, _ = play_with_crash(HISTORIES[name], number)
        assert remains(server) == expected, f"after write {number} of {writes}"


def test_stages_start_together_or_not_at_all_when_the_manager_dies() -> None:
    """The Budget is cut before the next manager starts (J3)."""
    assert {start_of_stages_with_crash(number) for number in (0, 1, 4, 8, 16)} == {"Reserved", "Running"}


@pytest.mark.parametrize("name", HISTORIES)
def test_short_form_of_allocations_survives_crashes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """H2: leases are restored from short entries, also by a manager that writes the long form."""
    undisturbed, writes = play_with_crash(HISTORIES[name])
    leases = remains(undisturbed)["leases"]
    for number in spread(writes, 3):
        monkeypatch.setattr(run_allocation, "FEW_LEASES", 0)
        server, _ = play_with_crash(HISTORIES[name], number)
        assert remains(server)["leases"] == leases, f"after write {number} of {writes}"
        monkeypatch.undo()
        restarted = Manager(server)
        restarted.settle()
        assert (remains(server)["leases"], restarted.violations) == (leases, [])
