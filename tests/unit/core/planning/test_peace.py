"""A lottery gives peace: who had a ticket and did not lose is not drawn for a while (R4)."""

import msgspec
import pytest

from jobtree.api.kinds.policy import Policy
from jobtree.api.schema.quantities import HOUR, MINUTE
from jobtree.core.model.promise import LOTTERY
from jobtree.core.reporting.object_status import KnownRisks, run_status
from jobtree.core.runs.notice import immune_until
from jobtree.core.runs.run_state import RunState
from tests.unit.core.build import T0, budget, nodes, run
from tests.unit.core.lab import Lab

OLD = tuple(f"old-{number}" for number in range(4))


def crowd(*names: str, policy: Policy | None = None) -> Lab:
    """Four Runs of two nodes each fill a domain; two hours later others want two nodes each."""
    lab = Lab(nodes("nv-a", 8), budget("org:a", 64), budget("org:b", 64), policy=policy)
    lab.submit(*(run(name, "org:a", 16, checkpoint="10m") for name in OLD))
    lab.advance(2 * HOUR)
    lab.submit(*(run(name, "org:b", 16, at=2 * HOUR + number) for number, name in enumerate(names)))
    return lab


def survivors(lab: Lab) -> list[str]:
    return [name for name in OLD if lab[name].phase == "Running"]


def test_a_survivor_is_not_drawn_for_two_hours_and_knows_it() -> None:
    lab = crowd("first")
    lab.live(2 * HOUR + 10 * MINUTE)
    assert lab["first"].phase == "Running"
    assert len(survivors(lab)) == 3
    for name in survivors(lab):
        assert immune_until(lab.world.policy, lab[name], lab.world.now) == T0 + 4 * HOUR + 10 * MINUTE
    (loser,) = set(OLD) - set(survivors(lab))
    assert lab.promised_at(loser) == 4 * HOUR + 10 * MINUTE


def test_two_promises_of_one_instant_do_not_draw_from_the_same_tickets() -> None:
    """Both told 0.75 and 0.25 for the same Runs, and the first of them always lost (issue 20, 7b)."""
    lab = crowd("first", "second")
    assert lab.promised_at("first") == 2 * HOUR + 10 * MINUTE
    assert lab.promised_at("second") == 4 * HOUR + 10 * MINUTE


def test_no_lottery_before_another_gives_peace_to_what_that_one_draws_from() -> None:
    lab = crowd()
    lab.submit(run("slow", "org:b", 16, at=2 * HOUR, checkpoint="30m"))
    lab.put(budget("org:c", 64))
    before = lab.promised_at("slow")
    lab.submit(run("other", "org:c", 16, at=2 * HOUR + 1))
    after = lab.promised_at("other")
    assert before is not None
    assert after is not None
    assert after - before >= 2 * HOUR


def test_without_peace_they_do() -> None:
    lab = crowd("first", "second", policy=Policy(peace_ms=0))
    assert lab.promised_at("first") == lab.promised_at("second") == 2 * HOUR + 10 * MINUTE


def test_peace_survives_a_restart_with_the_status_of_the_run() -> None:
    lab = crowd("first")
    lab.live(2 * HOUR + 10 * MINUTE)
    survivor = lab[survivors(lab)[0]]
    status = run_status(lab.world, survivor, KnownRisks(0))
    loaded = RunState(msgspec.structs.replace(survivor.run_object, status=status), lab.world.now)
    assert loaded.not_drawn_at == survivor.not_drawn_at == T0 + 2 * HOUR + 10 * MINUTE


def test_a_lottery_that_draws_nobody_gives_no_peace() -> None:
    lab = crowd("first")
    assert lab.promise("first").disruption == LOTTERY
    lab.finish("old-0")
    lab.live(3 * HOUR)
    assert lab["first"].phase == "Running"
    assert [lab[name].not_drawn_at for name in OLD[1:]] == [None, None, None]


@pytest.mark.parametrize("key", range(5))
def test_nobody_is_drawn_within_peace_of_a_lottery_that_it_survived(key: int) -> None:
    lab = crowd("w0", "w1", "w2")
    lab.world.lottery_key = bytes([key])
    drawn_at: dict[str, int] = {}
    for at in range(2 * HOUR, 14 * HOUR, 10 * MINUTE):
        running = {name for name in OLD if lab[name].phase == "Running"}
        before = len(lab.lotteries)
        lab.live(at)
        for record in lab.lotteries[before:]:
            for name in running if record.decision.draws else ():
                lost = f"{name}-uid" in record.decision.losers
                assert not lost or at - drawn_at.get(name, -9 * HOUR) >= 2 * HOUR - 10 * MINUTE
                drawn_at[name] = at
