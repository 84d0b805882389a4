"""A replay under Jobtree has the same outcome as the simulated cluster, without documents."""

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
from tests.unit.simulation.small_replays import Job, busy_day, replay, replay_setup

SEED, JOBS = 1, 16  # tests/slow has whole days


def node_document(setup: ReplaySetup, number: int, *, failed: bool = False) -> Document:
    node = setup.nodes[number]
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "uid": node.uid, "labels": dict(node.labels)},
        "spec": {"taints": [{"key": OUT_OF_SERVICE, "effect": "NoExecute"}]} if failed else {},
        "status": {"allocatable": {"nvidia.com/gpu": node.gpus}},
    }
    return Document("test", body)


def run_document(setup: ReplaySetup, job: int) -> Document:
    trace, limits = setup.trace, declared(setup.trace, setup.behavior)
    assert limits is not None
    body = {
        "apiVersion": "rq.davidlangworthy.io/v1",
        "kind": "Run",
        "metadata": {
            "name": str(job),
            "namespace": NAMESPACE,
            "uid": f"{job:08d}-trace",
            "creationTimestamp": format_time(trace.submit[job] + setup.epoch),
            "annotations": {DURATION: format_duration(trace.duration[job])},
        },
        "spec": {
            "owner": setup.owners[trace.team[job]],
            "resources": {"gpuType": setup.flavor, "totalGPUs": trace.gpus[job]},
            "runtime": {
                "maxDuration": format_duration(limits[job]),
                "checkpoint": format_duration(setup.behavior.checkpoint or 0),
            },
        },
    }
    return Document("test", body)


def simulated_cluster(setup: ReplaySetup) -> SimulatedCluster:
    cluster = SimulatedCluster(setup.epoch, setup.policy, checked=False)  # other tests check the invariants
    nodes = [node_document(setup, number) for number in range(len(setup.nodes))]
    cluster.load([*nodes, *(Document("test", to_document(budget)) for budget in setup.budgets)])
    changes = [(at, 2, job) for job, at in enumerate(setup.trace.submit)]
    for outage in setup.outages:
        changes += [(outage.start, 1, outage.node), (outage.end, 0, outage.node)]
    for at, kind, number in sorted(changes):
        cluster.advance(at + setup.epoch)
        if kind == 2:
            cluster.submit([run_document(setup, number)])
        else:
            (cluster.fail if kind else cluster.heal)([setup.nodes[number].name])
    cluster.advance(setup.epoch + 10_000_000 * SECOND)
    return cluster


def check_ends_agree(setup: ReplaySetup) -> None:
    """Checks that the replay and the simulated cluster end each job at the same instant."""
    meter = replay("jobtree", setup).meter
    cluster = simulated_cluster(setup)
    ended: dict[int, int] = {}
    for _, body in cluster.objects.of("Lease"):
        job, end = int(body["spec"]["runRef"]["name"]), parse_time(body["status"]["end"]) - setup.epoch
        ended[job] = max(end, ended.get(job, 0))
    assert [ended[job] for job in range(len(setup.trace))] == list(meter.finish)


def check_counts(simulation: JobtreeScheduler) -> None:
    """Promises are counted, and so are the stops by the node that failed."""
    promises, counts = simulation.promises, (simulation.promises.firm, simulation.promises.conditional)
    dated = sum(count.kept + count.broken for count in counts)
    assert len(promises.errors) == len(promises.promised_waits) == dated > 0
    assert dated <= promises.made
    assert sum(promises.broken_reasons.values()) == sum(count.broken for count in counts)
    assert simulation.meter.stops["NodeFailure"].count >= 1


def check_nothing_is_left(simulation: JobtreeScheduler) -> None:
    """Checks that closed leases are removed with their Run, and that the world is empty at the end."""
    world = simulation.world
    while simulation.step():
        runs_of_closed = {lease.rsplit("-", 2)[0] for lease in world.lease_intake.closed}
        assert runs_of_closed <= {name for _, name in world.runs}
    assert not world.runs
    assert not world.posted_leases
    assert not world.lease_intake.closed
    assert simulation.meter.used.value == simulation.meter.waiting.value == 0
    assert simulation.meter.stranded.value == 0


def test_replay_ends_jobs_when_the_simulated_cluster_does() -> None:
    check_ends_agree(busy_day(SEED, JOBS))


def test_promises_and_stops_are_counted() -> None:
    simulation = JobtreeScheduler(busy_day(SEED, JOBS))
    assert run(simulation)
    check_counts(simulation)


def test_ended_jobs_leave_nothing_in_the_world() -> None:
    check_nothing_is_left(JobtreeScheduler(busy_day(SEED, JOBS)))


def test_lottery_costs_no_work_with_notice() -> None:
    """A job of another team takes the only node after two hours, and the loser continues later."""
    jobs = (Job(0, 30_000, 8, "ours"), Job(7_300, 1_000, 8, "theirs"))
    budgets = {"ours": "8", "theirs": "8"}
    lost = {}
    for notice in (False, True):
        behavior = UserBehavior(declares="none", checkpoint=1_000 * SECOND, notice=notice)
        meter = replay("jobtree", replay_setup(*jobs, behavior=behavior, budgets=budgets)).meter
        assert meter.stops["RandomPreempt"].count == 1
        lost[notice] = meter.stops["RandomPreempt"].lost
    assert lost[False] > 0
    assert lost[True] == 0


def test_run_times_are_kept_of_the_last_jobs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_durations, "MAX_OBSERVATIONS", 5)
    simulation = JobtreeScheduler(replay_setup(*(Job(100 * number, 50, 1) for number in range(80))))
    assert run(simulation)
    assert sum(map(len, simulation.world.run_history.by_owner.values())) <= 10
