"""The made-up traces on which promises meet, and what is counted on them."""

import msgspec
import pytest

from benchmarks.crowds import SMALL_TEAM, Crowd, Job, blue_waters, flood, helios, small
from benchmarks.kept_promises import (
    Promises,
    kept_figures,
    replayed,
    section,
    waits_within_budget,
)
from benchmarks.report import missed
from benchmarks.slip_reasons import Break, Cancelled, CheckedReplay, checked, verdict
from jobtree.api.schema.quantities import HOUR, MINUTE
from jobtree.simulation.inputs.outages import Outage
from jobtree.simulation.inputs.replay_setup import ReplaySetup
from jobtree.simulation.replay.promise_log import Miss
from jobtree.simulation.replay.saved_replay import run

CROWDS = (small(3), helios(0, 120), blue_waters(0, 120), flood(0, 60))
RUN = ("trace", "0")


def crowd(*jobs: Job, nodes: int = 1, budgets: dict[str, str] | None = None) -> Crowd:
    return Crowd("few", jobs, nodes, 1, 110, budgets=budgets or {})


@pytest.mark.parametrize("made", CROWDS, ids=lambda made: made.name)
def test_crowd_fits_its_fleet_and_its_budgets_add_up_to_it(made: Crowd) -> None:
    setup = made.setup()
    assert max(setup.trace.gpus) <= setup.gpus
    assert sum(setup.granted()) == setup.gpus
    assert list(setup.trace.submit) == sorted(setup.trace.submit)


def test_crowds_are_the_same_every_time() -> None:
    assert (small(3), helios(0, 120), blue_waters(0, 120), flood(0, 60)) == CROWDS


def test_most_work_of_a_helios_crowd_is_in_pods_of_a_node() -> None:
    jobs = helios(0, 1000).jobs
    whole = sum(job.gpus * job.duration for job in jobs if job.gpus >= 8)
    assert 0.85 < whole / sum(job.gpus * job.duration for job in jobs) < 0.95


def test_burst_of_blue_waters_has_wide_gangs_within_minutes() -> None:
    jobs = [job for job in blue_waters(0, 600).jobs if job.gpus >= 64]
    assert max(sum(0 <= other.submit - job.submit < 10 * MINUTE for other in jobs) for job in jobs) > 80


def test_small_team_of_a_flood_has_its_own_budget() -> None:
    made = flood(0, 60)
    assert {job.gpus for job in made.jobs if job.team == SMALL_TEAM} == {int(made.budgets[SMALL_TEAM])}


def test_wait_counts_only_if_the_former_jobs_of_the_small_team_ended() -> None:
    """The second job comes while the first runs on all of the budget: its wait is the team's own."""
    jobs = [
        Job(0, SMALL_TEAM, 8, 2 * HOUR),
        Job(HOUR, SMALL_TEAM, 8, HOUR),
        Job(5 * HOUR, SMALL_TEAM, 8, HOUR),
    ]
    meter = replayed(crowd(*jobs).setup(), "jobtree").meter
    assert list(waits_within_budget(meter)) == [0, 0]


def test_firm_and_conditional_misses_are_counted_apart() -> None:
    calm = Promises()
    calm.firm, calm.conditional = 1000, 10
    calm.misses = [
        ("few", Miss(RUN, 1, conditional, reason))
        for conditional, reason in [(False, "CrowdedOut"), (True, "OwnerNeeds"), (True, "Reclaimed")]
    ]
    figures = {figure.name: figure for figure in kept_figures(calm, Promises())}
    assert (figures["not kept"].value, figures["not kept"].verdict) == (0.1, "pass")
    assert figures["conditional not kept"].value == 20
    assert figures["  CrowdedOut"].value == figures["  Reclaimed (conditional)"].value == 1
    assert missed([section("few", 0, figures.values(), judged=True)]) == [
        "promises of few: conditional not kept, another reason"
    ]


# The reasons


def second_job(*, outage: bool) -> tuple[ReplaySetup, Break]:
    """A job waits for the end of another on the only node, which may fail; returns its first date."""
    jobs = [Job(0, "a", 8, HOUR), Job(MINUTE, "a", 8, HOUR), Job(2 * MINUTE, "b", 8, HOUR)]
    outages = (Outage(0, 30 * MINUTE, 20 * HOUR),) if outage else ()
    setup = msgspec.structs.replace(crowd(*jobs, budgets={"a": "8"}).setup(), outages=outages)
    replay = CheckedReplay(setup)
    run(replay)
    date, (told, conditional) = next(
        (date, said) for (run_key, date), said in replay.promises.told.items() if run_key == ("trace", "1")
    )
    return setup, Break(("trace", "1"), date, told, conditional, "")


@pytest.mark.parametrize(
    ("reason", "answer"),
    [("NodesLost", "right"), ("CrowdedOut", "no such cause"), ("OwnerNeeds", "slips without it too")],
)
def test_lost_node_is_the_only_right_reason_of_what_it_breaks(reason: str, answer: str) -> None:
    setup, broken = second_job(outage=True)
    assert verdict(setup, broken._replace(reason=reason)) == answer


@pytest.mark.parametrize(
    ("reason", "answer"),
    [("NodesLost", "no such cause"), ("CrowdedOut", "a later arrival broke it"), ("OwnerNeeds", "right")],
)
def test_later_arrival_is_no_reason_but_the_need_of_an_owner(reason: str, answer: str) -> None:
    """The date is kept where nobody comes later."""
    setup, broken = second_job(outage=False)
    assert verdict(setup, broken._replace(reason=reason)) == answer


def test_slips_of_a_replay_are_checked() -> None:
    setup, broken = second_job(outage=True)
    assert {(found.run_key, found.date): answer for found, answer in checked(setup)}[
        broken.run_key, broken.date
    ] == "right"


def test_replay_can_cancel_the_jobs_of_an_owner_that_wait_at_an_instant() -> None:
    jobs = Job(0, "a", 8, HOUR), Job(MINUTE, "a", 8, HOUR), Job(2 * MINUTE, "b", 8, HOUR)
    setup = crowd(*jobs, budgets={"a": "8"}).setup()
    replay = CheckedReplay(setup, cancelled=Cancelled(setup.epoch + 2 * MINUTE, ("org:a",)))
    run(replay)
    assert [replay.runs_since(job, 10 * HOUR) for job in range(3)] == [True, False, True]
