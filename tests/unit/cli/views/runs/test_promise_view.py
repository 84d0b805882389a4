"""What ``explain`` says of the promise of a Run."""

from jobtree.api.schema.quantities import HOUR
from jobtree.cli.views.place_names import Places
from jobtree.cli.views.runs.promise_view import promise_lines
from tests.unit.core.build import budget, nodes, run
from tests.unit.core.lab import Lab


def test_it_says_how_much_budget_was_kept_idle_and_when_none_is_kept_any_longer() -> None:
    """C12: a Run without a date keeps 16 GPUs of budget, of which 8 are idle."""
    lab = Lab(nodes("nv-a", 3), budget("org", 16))
    lab.submit(run("old", "org", 8), run("wide", "org", 16, at=1))
    lab.live(10 * HOUR)
    lines = [line.strip() for line in promise_lines(Places(lab.world), lab["wide"])]
    assert "kept idle        80 of at most 128 GPU-hours (8h × 16 GPUs)" in lines
    lab.live(16 * HOUR)
    lines = [line.strip() for line in promise_lines(Places(lab.world), lab["wide"])]
    assert "kept budget      none: money was kept for 8h × 16 GPUs, and younger Runs may use it now" in lines
