"""A manager is killed after each write of a history: the next one continues, and the outcome is the same."""

import pytest

from tests.unit.manager.histories import HISTORIES, play_with_crash, remains, start_of_stages_with_crash

MAX_WRITES = 400


@pytest.mark.parametrize("name", HISTORIES)
def test_outcome_is_the_same_when_the_manager_dies_after_any_write(name: str) -> None:
    undisturbed, writes = play_with_crash(HISTORIES[name])
    expected = remains(undisturbed)
    assert 20 < writes < MAX_WRITES
    for number in range(1, writes + 1):
        server, _ = play_with_crash(HISTORIES[name], number)
        assert remains(server) == expected, f"after write {number} of {writes}"


def test_stages_start_together_or_not_at_all_when_the_manager_dies_after_any_write() -> None:
    """J3; the Budget is cut before the next manager starts."""
    assert {start_of_stages_with_crash(number) for number in range(40)} == {"Reserved", "Running"}
