"""A manager is killed after a write: the next manager continues, and the outcome is the same.

Here after some writes of each history; ``tests/crash`` kills it after every write.
"""

import pytest

from tests.unit.manager.histories import (
    HISTORIES,
    play_with_crash,
    remains,
    spread,
    start_of_stages_with_crash,
)


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
