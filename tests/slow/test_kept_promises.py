"""The quick form of the benchmark of kept promises replays a few traces."""

from benchmarks.kept_promises import KINDS, pooled, small_team
from benchmarks.scale import QUICK
from jobtree.api.schema.quantities import MINUTE


def test_quick_sections_have_no_bars() -> None:
    measured = [pooled(KINDS[0], QUICK, 10 * MINUTE), small_team(QUICK, 0)]
    assert [part.title for part in measured] == [
        "promises of 3 small traces of mixed sizes, restarts of 10 minutes",
        "promises of a small team in a flood",
    ]
    figures = {figure.name: figure for part in measured for figure in part.figures}
    assert all(figure.bar is None for figure in figures.values())
    assert figures["firm promises"].value + figures["conditional promises"].value > 0
