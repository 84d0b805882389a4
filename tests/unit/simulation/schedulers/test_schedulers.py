"""Each compared scheduler on cases that can be checked by hand."""

import msgspec
import pytest

from jobtree.simulation.inputs.user_behavior import UserBehavior
from jobtree.simulation.replay.saved_replay import run
from jobtree.simulation.schedulers.backfill import Easy
from jobtree.simulation.schedulers.node_pool import Nodes
from tests.unit.simulation.small_replays import EXACT, Job, ends, replay, replay_setup, starts


def test_job_is_placed_on_the_fullest_node_that_fits() -> None:
    nodes = Nodes(3, 8)
    nodes.take(((0, 2), (1, 5)))
    assert nodes.place(3) == ((1, 3),)
    assert nodes.place(4) == ((0, 4),)
    assert nodes.place(8) == ((2, 8),)
    assert nodes.place(16) is None


def test_large_job_is_placed_on_whole_nodes_and_its_rest_on_the_freest() -> None:
    nodes = Nodes(4, 8)
    nodes.take(((0, 4), (1, 2)))
    assert nodes.place(20) == ((2, 8), (3, 8), (1, 4))
    assert nodes.place(23) is None
    nodes.go_down(3)
    assert nodes.place(12) == ((2, 8), (1, 4))
    assert nodes.place(16) is None
    nodes.come_up(3)
    assert nodes.place(16) == ((2, 8), (3, 8))


# a runs on 6 of 8 GPUs until 100; b needs all 8; c and d are small.
BLOCKED = (Job(0, 100, 6), Job(1, 50, 8), Job(2, 90, 2), Job(3, 200, 2))


def test_fifo_starts_no_job_before_the_first() -> None:
    assert starts("fifo", replay_setup(*BLOCKED)) == [0, 100, 150, 150]


def test_sjf_starts_no_job_before_the_shortest() -> None:
    assert starts("sjf", replay_setup(Job(0, 100, 8), Job(1, 50, 8), Job(2, 10, 8))) == [0, 110, 100]
    assert starts("sjf", replay_setup(*BLOCKED)) == [0, 100, 150, 150]


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_backfill_starts_jobs_that_end_in_time(policy: str) -> None:
    assert starts(policy, replay_setup(*BLOCKED)) == [0, 100, 2, 150]


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_backfill_starts_jobs_that_need_no_held_gpus(policy: str) -> None:
    """The third job needs the node of the first one; nothing is held on the other node."""
    jobs = (Job(0, 100, 8), Job(0, 100, 4), Job(1, 50, 8), Job(2, 500, 4))
    assert starts(policy, replay_setup(*jobs, nodes=2)) == [0, 0, 100, 2]


def test_backfill_uses_declared_and_not_true_durations() -> None:
    """The third job would end in time, but declares an hour."""
    simulation = Easy(replay_setup(*BLOCKED[:3]))
    simulation.assumed[2] = 3_600_000
    assert run(simulation)
    assert [at // 1000 for at in simulation.meter.first_start] == [0, 100, 150]


def test_backfill_starts_only_jobs_that_need_no_held_gpus_when_no_end_is_declared() -> None:
    undeclared = msgspec.structs.replace(EXACT, declares="none")
    assert starts("easy", replay_setup(*BLOCKED, behavior=undeclared)) == [0, 100, 150, 150]
    jobs = (Job(0, 100, 8), Job(0, 100, 4), Job(1, 50, 8), Job(2, 50, 4))
    assert starts("easy", replay_setup(*jobs, nodes=2, behavior=undeclared)) == [0, 0, 100, 2]


def test_easy_and_conservative_start_the_same_jobs_when_nothing_is_delayed() -> None:
    """One node. a runs on 4 until 100; b (8) is first in line, for 100; c (4, 100 s) second, for 150.

    d (4, 120 s) does not end before b starts; e (4, 60 s) does, in both.
    """
    jobs = (Job(0, 100, 4), Job(1, 50, 8), Job(2, 100, 4), Job(3, 120, 4), Job(4, 60, 4))
    assert starts("easy", replay_setup(*jobs)) == [0, 100, 150, 150, 4]
    assert starts("conservative", replay_setup(*jobs)) == [0, 100, 150, 150, 4]
    # Two nodes: a holds one until 100. b wants both. c wants 8 for 30 s, d 8 for 98 s: only one can pass.
    jobs = (Job(0, 100, 8), Job(1, 50, 16), Job(2, 99, 8), Job(3, 30, 8), Job(4, 30, 8))
    assert starts("easy", replay_setup(*jobs, nodes=2)) == [0, 100, 150, 3, 33]
    assert starts("conservative", replay_setup(*jobs, nodes=2)) == [0, 100, 150, 3, 33]


def test_conservative_holds_nodes_for_the_second_job_and_easy_does_not() -> None:
    """Three nodes: a until 100, b until 60, c until 10. d wants 3 nodes (from 100), e wants 2 for 30 s.

    e is second in line, held two nodes from 60. At 10 one node is free: f (1 node, 70 s) would end at 82,
    before d, but not before e's hold. EASY lets it pass, so e waits for it; conservative does not.
    """
    jobs = (
        Job(0, 100, 8),
        Job(0, 60, 8),
        Job(0, 10, 8),
        Job(1, 50, 24),
        Job(2, 30, 16),
        Job(12, 70, 8),
    )
    easy, conservative = (starts(policy, replay_setup(*jobs, nodes=3)) for policy in ("easy", "conservative"))
    assert easy[5] == 12
    assert easy[4] > 60
    assert conservative[4] == 60
    assert conservative[5] > 12


@pytest.mark.parametrize("policy", ["fifo", "sjf", "easy", "conservative", "quota", "jobtree"])
def test_failed_node_costs_the_work_since_the_last_checkpoint(policy: str) -> None:
    behavior = UserBehavior(
        declares="none", checkpoint=20_000
    )  # an exact limit would end what has to be done again
    given = replay_setup(Job(0, 100, 8), Job(1, 10, 8), nodes=2, behavior=behavior, outages=[(0, 50, 300)])
    simulation = replay(policy, given)
    assert [at // 1000 for at in simulation.meter.finish] == [110, 11]
    stops = simulation.meter.stops["NodeFailure"]
    assert (stops.count, stops.lost) == (1, 10_000 * 8)
    assert simulation.meter.capacity.in_window > 0


@pytest.mark.parametrize("policy", ["fifo", "easy", "conservative", "quota", "jobtree"])
def test_job_waits_for_a_node_that_is_out_of_service(policy: str) -> None:
    given = replay_setup(Job(0, 10, 8), Job(5, 10, 8), outages=[(0, 2, 60)])
    assert ends(policy, given) == [70, 80]


ONE_NODE_EACH = {"ours": "8", "theirs": "8"}


def test_team_borrows_idle_quota_of_another_team() -> None:
    jobs = (Job(0, 100, 8, "ours"), Job(1, 100, 8, "ours"), Job(5, 1, 1, "theirs"))
    assert starts("quota", replay_setup(*jobs, nodes=2, budgets=ONE_NODE_EACH))[:2] == [0, 1]


def test_latest_borrower_is_preempted_for_a_job_within_quota() -> None:
    jobs = (Job(0, 100, 8, "ours"), Job(1, 100, 8, "ours"), Job(50, 10, 8, "theirs"))
    simulation = replay("quota", replay_setup(*jobs, nodes=2, budgets=ONE_NODE_EACH))
    assert [at // 1000 for at in simulation.meter.first_start] == [0, 1, 50]
    assert [at // 1000 for at in simulation.meter.finish] == [100, 160, 60]
    assert simulation.meter.stops["Preempted"].lost == 49_000 * 8


def test_no_job_is_preempted_for_a_job_beyond_the_quota_of_its_team() -> None:
    jobs = (Job(0, 100, 8, "ours"), Job(1, 100, 4, "ours"), Job(2, 10, 16, "theirs"))
    simulation = replay("quota", replay_setup(*jobs, nodes=2, budgets=ONE_NODE_EACH))
    assert simulation.meter.stops == {}
    assert simulation.meter.first_start[2] == 101_000


def test_job_that_cannot_be_admitted_does_not_delay_others() -> None:
    jobs = (Job(0, 100, 8, "ours"), Job(1, 10, 16, "ours"), Job(2, 10, 8, "ours"), Job(3, 1, 1, "theirs"))
    assert starts("quota", replay_setup(*jobs, nodes=2, budgets=ONE_NODE_EACH))[2] == 2


def test_no_more_jobs_are_preempted_than_needed() -> None:
    """Two borrowers of 4 on one node: a job of 4 takes the later one only."""
    jobs = (
        Job(0, 100, 8, "ours"),
        Job(1, 100, 4, "ours"),
        Job(2, 100, 4, "ours"),
        Job(50, 10, 4, "theirs"),
    )
    simulation = replay("quota", replay_setup(*jobs, nodes=2, budgets=ONE_NODE_EACH))
    assert list(simulation.meter.stopped) == [0, 0, 1, 0]


def test_job_within_the_quota_of_its_team_is_not_preempted() -> None:
    """Without the borrower half a node is free, which is too little; the rest is within quota."""
    jobs = (
        Job(0, 100, 4, "ours"),
        Job(1, 100, 4, "ours"),
        Job(2, 100, 4, "ours"),
        Job(3, 100, 4, "theirs"),
        Job(10, 10, 8, "theirs"),
    )
    simulation = replay("quota", replay_setup(*jobs, nodes=2, budgets={"ours": "8", "theirs": "12"}))
    assert simulation.meter.stops == {}
    assert simulation.meter.first_start[4] == 101_000


def test_quota_by_size_starts_jobs_of_whole_nodes_first_and_preempts_small_jobs_for_them() -> None:
    jobs = (Job(0, 100, 4, "ours"), Job(10, 10, 8, "ours"))
    simulation = replay("quota-by-size", replay_setup(*jobs, budgets={"ours": "8"}))
    assert simulation.meter.first_start[1] == 100_000  # it is within the quota when the small job has ended
    wide = replay("quota-by-size", replay_setup(*jobs, budgets={"ours": "16"}))
    assert [at // 1000 for at in wide.meter.first_start] == [0, 10]
    assert list(wide.meter.stopped) == [1, 0]
    plain = replay("quota", replay_setup(*jobs, budgets={"ours": "16"}))
    assert plain.meter.stops == {}
