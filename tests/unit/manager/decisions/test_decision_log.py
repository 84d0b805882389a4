"""Log lines and measures of actions, also when one plan has several actions of one Run."""

import msgspec
import pytest

from jobtree.api.schema.quantities import MINUTE
from jobtree.core.model.actions import Action, LeaseClosing
from jobtree.core.model.outcomes import ActionKind
from jobtree.core.model.reasons import Cause, Reason
from jobtree.core.planning.planning_pass import plan
from jobtree.core.world.world import World
from jobtree.manager.decisions.decision_log import decision_logs, log_lines
from jobtree.manager.metrics import PREEMPTIONS, PROMISE_ERROR, PROMISES, Measure
from tests.unit.core.build import H100, T0, budget, nodes, run

KEY = ("ns", "r")


def started() -> tuple[World, Action]:
    """Returns a world in which a Run can start, and the action that starts it."""
    world = World(now=T0)
    for node in nodes("nv-a", 1):
        world.put_node(node)
    world.put_budget(budget("org", 8))
    world.put_run(run("r", "org", 8))
    (start,) = plan(world).actions
    return world, start


def reclaimed(start: Action, *leases: str) -> Action:
    closes = tuple(LeaseClosing(name, T0, "Reclaimed") for name in leases)
    return Action("Requeue", start.run_key, T0, Cause(Reason.RECLAIMED), closes=closes)


def test_lease_that_one_plan_opens_and_closes_is_logged() -> None:
    world, start = started()
    (lease,) = start.opens
    opened, ended = decision_logs(world, [start, reclaimed(start, lease.name)])[KEY]
    ((_, line),) = opened.lines
    assert (line["message"], line["opens"]) == ("Start", 8)
    ((_, line),) = ended.lines
    assert (line["message"], line["closes"], line["reasons"]) == ("Requeue", 8, ["Reclaimed"])
    assert ended.measures == (Measure(PREEMPTIONS, (H100, "us/a/nv-a", "Reclaimed")),)


def test_run_that_loses_several_leases_for_one_reason_counts_as_one_preemption() -> None:
    world, start = started()
    (lease,) = start.opens
    node = lease.slots[0][0]
    halves = [
        msgspec.structs.replace(lease, name=f"r-{mask}", slots=((node, mask),), gpus=4)
        for mask in (0x0F, 0xF0)
    ]
    start = msgspec.structs.replace(start, opens=tuple(halves))
    *_, ended = decision_logs(world, [start, reclaimed(start, "r-15", "r-240")])[KEY]
    assert [measure.metric for measure in ended.measures] == [PREEMPTIONS]


@pytest.mark.parametrize(("kind", "reason"), [("Requeue", Reason.OWNER_NEEDS), ("Demote", Reason.DEMOTED)])
def test_recall_preempts_only_a_run_that_it_stops(kind: ActionKind, reason: Reason) -> None:
    world, start = started()
    (lease,) = start.opens
    recall = Action(
        kind, start.run_key, T0, Cause(reason), closes=(LeaseClosing(lease.name, T0, "Recalled"),)
    )
    _, ended = decision_logs(world, [start, recall])[KEY]
    counted = (Measure(PREEMPTIONS, (H100, "us/a/nv-a", "Recalled")),)
    assert ended.measures == (counted if kind == "Requeue" else ())


def test_promise_that_one_plan_makes_and_supersedes_counts_once() -> None:
    world, _ = started()
    world.put_run(run("big", "org", 8, at=1))
    world.apply_plan(plan(world))
    promise = world.runs["ns", "big"].promise
    assert promise is not None
    promise = msgspec.structs.replace(promise, at=T0 + 60_000)
    kinds: tuple[ActionKind, ...] = ("Reserve", "Supersede", "Confirm")
    actions = [Action(kind, ("ns", "big"), T0, Cause(Reason.RESERVED), promise=promise) for kind in kinds]
    measures = [measure for log in decision_logs(world, actions)["ns", "big"] for measure in log.measures]
    assert measures == [Measure(PROMISE_ERROR, value=-60), Measure(PROMISES, ("firm", "onTime"))]


def test_start_that_is_stopped_within_30_minutes_of_its_date_is_counted() -> None:
    """R5: the promise was due at T0."""
    world, start = started()
    world.apply_plan(plan(world))
    world.runs[KEY].confirm(T0)
    for minutes, counted in ((29, [Measure(PROMISES, ("firm", "stopped"))]), (30, [])):
        stop = Action("Requeue", start.run_key, T0 + minutes * MINUTE, Cause(Reason.RECLAIMED))
        (log,) = decision_logs(world, [stop])[KEY]
        assert [*log.measures] == counted


@pytest.mark.parametrize(
    ("kind", "reason", "part"),
    [
        ("Reserve", Reason.RESERVED, "forecast"),
        ("Move", Reason.NODES_LOST, "forecast"),
        ("Supersede", Reason.SUPERSEDED, "forecast"),
        ("Activate", Reason.ACTIVATED, "resolver"),
        ("Shrink", Reason.ACTIVATED, "resolver"),
        ("Fail", Reason.RANDOM_PREEMPT, "resolver"),
        ("Start", Reason.ACTIVATED, "binder"),
        ("Shrink", Reason.RESIZED, "binder"),
        ("Recover", Reason.NODE_FAILURE, "binder"),
    ],
)
def test_log_line_names_the_part_that_decided(kind: ActionKind, reason: Reason, part: str) -> None:
    ((named, _),) = log_lines(World(now=T0), Action(kind, KEY, T0, Cause(reason)), [])
    assert named == part
