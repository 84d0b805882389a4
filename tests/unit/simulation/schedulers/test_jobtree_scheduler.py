"""Jobtree's replay does what its simulated cluster does, without the documents."""

import random

import pytest

from jobtree.api.documents.document_stream import Document
from jobtree.api.kubernetes.node import OUT_OF_SERVICE
from jobtree.api.schema.quantities import SECOND, format_duration, format_time, parse_time
from jobtree.api.validation.object_parser import to_document
from jobtree.core.runs import run_durations
from jobtree.simulation.cluster.simulated_cluster import SimulatedCluster
from jobtree.simulation.cluster.simulated_work import DURATION
from jobtree.simulation.inputs.replay_setup import ReplaySetup
from jobtree.simulation.inputs.user_behavior import UserBehavior, declared
from jobtree.simulation.replay.saved_replay import run
from jobtree.simulation.schedulers.jobtree_scheduler import NAMESPACE, JobtreeScheduler
from tests.unit.simulation.stage import Job, replay, scene

TYPICAL = UserBehavior(declares="typical", checkpoint=600 * SECOND)


def busy_day(seed: int) -> ReplaySetup:
    draw = random.Random(seed)
    jobs = sorted(
        Job(
            draw.randrange(40_000),
            draw.randrange(600, 20_000),
            draw.choice([1, 2, 4, 8, 8, 16]),
            draw.choice("ab"),
        )
        for _ in range(60)
    )
    return scene(*jobs, nodes=5, habits=TYPICAL, budgets={"a": "24", "b": "16"}, outages=[(1, 9_000, 15_000)])


def node_document(given: ReplaySetup, number: int, *, failed: bool = False) -> Document:
    node = given.nodes[number]
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "uid": node.uid, "labels": dict(node.labels)},
        "spec": {"taints": [{"key": OUT_OF_SERVICE, "effect": "NoExecute"}]} if failed else {},
        "status": {"allocatable": {"nvidia.com/gpu": node.gpus}},
    }
    return Document("stage", body)


def run_document(given: ReplaySetup, job: int) -> Document:
    trace, limits = given.trace, declared(given.trace, given.habits)
    assert limits is not None
    body = {
        "apiVersion": "rq.davidlangworthy.io/v1",
        "kind": "Run",
        "metadata": {
            "name": str(job),
            "namespace": NAMESPACE,
            "uid": f"{job:08d}-trace",
            "creationTimestamp": format_time(trace.submit[job] + given.epoch),
            "annotations": {DURATION: format_duration(trace.duration[job])},
        },
        "spec": {
            "owner": given.owners[trace.team[job]],
            "resources": {"gpuType": given.flavor, "totalGPUs": trace.gpus[job]},
            "runtime": {
                "maxDuration": format_duration(limits[job]),
                "checkpoint": format_duration(given.habits.checkpoint or 0),
            },
        },
    }
    return Document("stage", body)


def on_a_simulated_cluster(given: ReplaySetup) -> SimulatedCluster:
    cluster = SimulatedCluster(given.epoch, given.policy, checked=False)  # other tests check the invariants
    nodes = [node_document(given, number) for number in range(len(given.nodes))]
    cluster.load([*nodes, *(Document("stage", to_document(budget)) for budget in given.budgets)])
    changes = [(at, 2, job) for job, at in enumerate(given.trace.submit)]
    for outage in given.outages:
        changes += [(outage.start, 1, outage.node), (outage.end, 0, outage.node)]
    for at, kind, what in sorted(changes):
        cluster.advance(at + given.epoch)
        if kind == 2:
            cluster.submit([run_document(given, what)])
        else:
            (cluster.fail if kind else cluster.heal)([given.nodes[what].name])
    cluster.advance(given.epoch + 10_000_000 * SECOND)
    return cluster


@pytest.mark.parametrize("seed", range(3))
def test_the_same_jobs_end_at_the_same_instants(seed: int) -> None:
    given = busy_day(seed)
    meter = replay("jobtree", given).meter
    cluster = on_a_simulated_cluster(given)
    ended: dict[int, int] = {}
    for _, body in cluster.objects.of("Lease"):
        job, end = int(body["spec"]["runRef"]["name"]), parse_time(body["status"]["end"]) - given.epoch
        ended[job] = max(end, ended.get(job, 0))
    assert [ended[job] for job in range(len(given.trace))] == list(meter.finish)


def test_promises_and_stops_are_counted() -> None:
    found = [JobtreeScheduler(busy_day(seed)) for seed in range(3)]
    assert all(run(simulation) for simulation in found)
    assert sum(simulation.promises.dated for simulation in found) > 0
    for simulation in found:
        promises = simulation.promises
        assert promises.kept <= promises.dated <= promises.made
        assert len(promises.errors) == promises.dated
        assert simulation.meter.stops["NodeFailure"].count >= 1


def test_what_is_finished_leaves_nothing_behind() -> None:
    simulation = JobtreeScheduler(busy_day(0))
    assert run(simulation)
    assert simulation.world.runs == {}
    assert simulation.world.posted_leases == {}
    assert simulation.meter.used.value == simulation.meter.waiting.value == 0
    assert simulation.meter.stranded.value == 0


def test_with_notice_a_lottery_costs_no_work() -> None:
    """One node. The other team's job may take it after two hours; the loser goes on where it was."""
    jobs = (Job(0, 30_000, 8, "ours"), Job(7_300, 1_000, 8, "theirs"))
    both = {"ours": "8", "theirs": "8"}
    lost = {}
    for notice in (False, True):
        habits = UserBehavior(declares="none", checkpoint=1_000 * SECOND, notice=notice)
        meter = replay("jobtree", scene(*jobs, habits=habits, budgets=both)).meter
        assert meter.stops["RandomPreempt"].count == 1
        lost[notice] = meter.stops["RandomPreempt"].lost
    assert lost[False] > 0
    assert lost[True] == 0


def test_memory_does_not_follow_what_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long jobs took is known of the last ones only, however many there were."""
    monkeypatch.setattr(run_durations, "MAX_OBSERVATIONS", 5)
    simulation = JobtreeScheduler(scene(*(Job(100 * number, 50, 1) for number in range(80))))
    assert run(simulation)
    assert sum(map(len, simulation.world.run_history.by_owner.values())) <= 10


def test_nothing_is_left_of_runs_that_are_gone() -> None:
    replayed = JobtreeScheduler(busy_day(1))
    world = replayed.world
    while replayed.step():
        there = {lease.rsplit("-", 2)[0] for lease in world.lease_intake.closed}
        assert there <= {name for _, name in world.runs}
    assert not world.runs
    assert not world.lease_intake.closed
