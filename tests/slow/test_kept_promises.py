"""The quick form of the benchmark of kept promises replays a few traces."""

import pytest

from benchmarks.crowds import small
from benchmarks.kept_promises import KINDS, OWNER_NEEDS, pooled, small_team
from benchmarks.scale import QUICK
from benchmarks.slip_reasons import CheckedReplay
from jobtree.api.schema.quantities import MINUTE
from jobtree.simulation.replay.saved_replay import run


def test_quick_sections_have_no_bars() -> None:
    measured = [pooled(KINDS[0], QUICK, 10 * MINUTE), small_team(QUICK, 0)]
    assert [part.title for part in measured] == [
        "promises of 3 small traces of mixed sizes, restarts of 10 minutes",
        "promises of a small team in a flood",
    ]
    figures = {figure.name: figure for part in measured for figure in part.figures}
    assert all(figure.bar is None for figure in figures.values())
    assert figures["firm promises"].value + figures["conditional promises"].value > 0


@pytest.mark.parametrize("number", range(8))
def test_dates_of_small_traces_slip_only_where_an_owner_needs_its_budget(number: int) -> None:
    """R5: without faults no firm date slips, and a conditional one only with the reason ``OwnerNeeds``."""
    replay = CheckedReplay(small(number).setup())
    run(replay)
    assert {(broken.conditional, broken.reason) for broken in replay.breaks()} <= {(True, OWNER_NEEDS)}
