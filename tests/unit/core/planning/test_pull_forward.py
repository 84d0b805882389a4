"""Promises that move earlier once only provisional work stands in their way (R5, R6)."""

from jobtree.api.schema.quantities import HOUR, MINUTE
from tests.unit.core.build import budget, nodes, run
from tests.unit.core.lab import Lab


def waiting_gang(passing: str = "30m") -> Lab:
    """Two nodes in use for ten hours, a gang that waits for both, and small work with a checkpoint."""
    lab = Lab(nodes("nv-a", 2), budget("org", 16))
    lab.submit(run("one", "org", 8, max_duration="10h"), run("two", "org", 8, at=1, max_duration="10h"))
    lab.submit(run("gang", "org", 16, at=2, max_duration="1h"))
    lab.submit(run("small", "org", 4, at=3, max_duration="20h", checkpoint=passing))
    lab.advance(10 * MINUTE)
    lab.finish("one")
    assert lab["small"].provisional
    assert (lab.promised_at("gang") or 0) > HOUR
    lab.advance(20 * MINUTE)
    return lab


def test_a_gang_is_promised_the_instant_at_which_provisional_work_has_had_its_notice() -> None:
    lab = waiting_gang()
    lab.finish("two")
    lab.sweep()
    assert lab.promised_at("gang") == 55 * MINUTE
    assert (lab["gang"].phase, lab["small"].phase) == ("Reserved", "Running")
    lab.live(55 * MINUTE)
    assert (lab["gang"].phase, lab["gang"].width) == ("Running", 16)
    assert lab.endings("small") == [("Reclaimed", 55 * MINUTE)]
    assert not any(one.decision.losers for one in lab.lotteries)


def test_nobody_has_less_notice_than_its_checkpoint_needs() -> None:
    lab = waiting_gang(passing="45m")
    lab.finish("two")
    lab.sweep()
    assert lab.promised_at("gang") == 70 * MINUTE


def test_for_what_need_not_yield_a_promise_keeps_its_date() -> None:
    """Half of what the gang needs is idle, but a third node is in use by somebody with a right to it."""
    lab = Lab(nodes("nv-a", 3), budget("org", 24))
    holders = [run(name, "org", 8, max_duration="10h") for name in ("one", "two", "three")]
    lab.submit(*holders, run("gang", "org", 24, at=1, max_duration="1h"))
    lab.submit(run("small", "org", 4, at=2, max_duration="20h", checkpoint="30m"))
    lab.advance(10 * MINUTE)
    before = lab.promised_at("gang")
    lab.finish("one", "two")
    lab.sweep()
    assert (lab["small"].provisional, lab.promised_at("gang")) == (True, before)
    lab.finish("three")
    lab.sweep()
    assert lab.promised_at("gang") == 50 * MINUTE
