"""A state file has the whole state of a cluster: a cluster that is saved and read again plans the same."""

from typing import Any

import pytest

from jobtree.api.documents.document_stream import Document, read_documents
from jobtree.api.schema.quantities import HOUR, MINUTE
from jobtree.simulation.cluster.simulated_cluster import SimulatedCluster
from jobtree.snapshot.state_file import write_cluster
from tests.unit.core.build import H100, T0

KEY = bytes(32)
Body = dict[str, Any]
API = "rq.davidlangworthy.io/v1"


def node(name: str) -> Body:
    labels = {"region": "us", "cluster": "a", "fabric.domain": name[0], "gpu.flavor": H100}
    capacity = {"nvidia.com/gpu": "8"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": capacity},
    }


def budget(gpus: int = 64) -> Body:
    envelope = {"name": "main", "flavor": H100, "concurrency": gpus}
    spec = {"owner": "org", "envelopes": [envelope]}
    return {"apiVersion": API, "kind": "Budget", "metadata": {"name": "org"}, "spec": spec}


def run(name: str, gpus: int = 8, **spec: Any) -> Body:  # noqa: ANN401  fields of the spec
    resources = {"gpuType": H100, "totalGPUs": gpus} if gpus else {"totalGPUs": 0, "pods": 2}
    if "stages" not in spec:
        spec["resources"] = resources
    metadata = {"name": name, "namespace": "ns"}
    return {"apiVersion": API, "kind": "Run", "metadata": metadata, "spec": {"owner": "org", **spec}}


def cluster_of(*bodies: Body, nodes: int = 3) -> SimulatedCluster:
    cluster = SimulatedCluster(T0, key=KEY)
    cluster.load([Document("it", body) for body in (*map(node, [f"a{n}" for n in range(nodes)]), budget())])
    if bodies:
        cluster.submit([Document("it", body) for body in bodies])
    return cluster


def reread(cluster: SimulatedCluster) -> SimulatedCluster:
    """Saves the cluster and returns the one that is read; checks that saving that gives the same file."""
    text = write_cluster(cluster)
    result = SimulatedCluster(cluster.now, key=KEY)
    result.load([document for document in read_documents(text, "file") if document.body["kind"] != "Clock"])
    assert write_cluster(result) == text
    return result


def progress(cluster: SimulatedCluster) -> dict[str, tuple[object, ...]]:
    """Returns the state of each Run apart from its leases; the times of changes only of running Runs."""
    states: dict[str, tuple[object, ...]] = {}
    for (_, name), run in cluster.world.runs.items():
        is_running = run.phase == "Running"
        pause = max(0, run.resume_at - cluster.now) if is_running else 0
        changed_at = run.changed_at if is_running else 0
        states[name] = (
            run.phase,
            run.attempt,
            run.restarts,
            changed_at,
            pause,
            dict(run.rank_slots),
            run.lotteries_lost,
            run.times_stopped,
        )
    return states


def assert_same_future(cluster: SimulatedCluster, until: int) -> None:
    """Checks that the cluster and a reread one are the same now and at ``until``."""
    copy = reread(cluster)
    assert progress(copy) == progress(cluster)
    for each in (cluster, copy):
        each.advance(until)
    assert write_cluster(copy) == write_cluster(cluster)


def elastic(name: str) -> Body:
    widths = {"minTotalGPUs": 8, "maxTotalGPUs": 24, "stepGPUs": 8}
    return run(name, 8, malleable=widths, runtime={"checkpoint": "10m"})


def test_reread_run_grows_at_the_same_time() -> None:
    cluster = cluster_of(elastic("r"))
    cluster.advance(T0 + 15 * MINUTE)
    assert_same_future(cluster, T0 + 20 * MINUTE)
    assert cluster.world.runs["ns", "r"].width == 24


def test_pause_between_attempts_and_restarts_are_kept() -> None:
    cluster = cluster_of(run("r", 16))
    cluster.advance(T0 + HOUR)
    cluster.crash(("ns", "r"), 1, 3)
    state = reread(cluster).world.runs["ns", "r"]
    assert (state.restarts, state.resume_at) == (1, T0 + HOUR + 10_000)
    assert_same_future(cluster, T0 + 2 * HOUR)


def test_ranks_keep_their_slots_after_a_swap() -> None:
    cluster = cluster_of(run("r", 16, spares=1), nodes=4)
    cluster.advance(T0 + HOUR)
    cluster.fail(["a0"])
    assert cluster.world.runs["ns", "r"].rank_slots[0, 0][0] == "a2"
    cluster.advance(T0 + 2 * HOUR)
    cluster.fail(["a1"])
    assert_same_future(cluster, T0 + 3 * HOUR)


def test_pods_without_gpus_keep_their_ranks_and_can_fail() -> None:
    cluster = reread(cluster_of(run("prep", 0)))
    assert list(cluster.world.runs["ns", "prep"].rank_slots) == [(0, 0), (0, 1)]
    cluster.crash(("ns", "prep"), 1, 1)
    assert reread(cluster).world.runs["ns", "prep"].restarts == 1


def pipeline() -> Body:
    def stage(name: str, **fields: Any) -> Body:  # noqa: ANN401  fields of a stage
        resources = {"gpuType": H100, "totalGPUs": 8}
        return {"name": name, "resources": resources, "runtime": {"maxDuration": "1h"}, **fields}

    joined = {"with": ["a"]}
    return run("t", stages=[stage("a"), stage("b", **joined), stage("c", after=["a", "b"])])


@pytest.mark.parametrize("minutes", [0, 30, 60, 90, 120])
def test_tree_with_a_gang_is_the_same_at_every_stage(minutes: int) -> None:
    cluster = cluster_of(run("holds", 24, runtime={"maxDuration": "30m"}), pipeline())
    cluster.advance(T0 + minutes * MINUTE)
    assert_same_future(cluster, T0 + 4 * HOUR)


def test_reservation_of_a_gang_has_the_promise_of_each_stage() -> None:
    cluster = cluster_of(run("holds", 24, runtime={"maxDuration": "30m"}), pipeline())
    copy = reread(cluster)
    for name in ("t-a", "t-b"):
        assert copy.world.runs["ns", name].promise == cluster.world.runs["ns", name].promise is not None


def test_lotteries_of_a_gang_are_kept_for_each_stage() -> None:
    cluster = cluster_of(*(run(f"x{n}") for n in range(2)), nodes=2)
    cluster.advance(T0 + MINUTE)
    cluster.submit([Document("it", pipeline())])
    cluster.advance(T0 + 3 * HOUR)
    (status,) = [body["status"] for key, body in cluster.objects.of("Reservation") if key[2] == "t-1"]
    assert (len(status["lotteries"]), "lottery" in status) == (1, True)
    reread(cluster)


def test_later_budget_causes_no_violation_by_earlier_leases() -> None:
    cluster = SimulatedCluster(T0, key=KEY)
    parent = budget()
    child = run("r")
    child["spec"]["owner"] = "org:a"
    cluster.load([Document("it", body) for body in (node("a0"), parent, child)])
    cluster.advance(T0 + HOUR)
    other = budget()
    other["metadata"]["name"], other["spec"] = "own", {"owner": "org:a", "parents": [], "envelopes": []}
    cluster.submit([Document("it", other)])
    assert reread(cluster).violations() == []


def test_deleted_stage_is_created_again_and_saved() -> None:
    cluster = cluster_of(pipeline())
    cluster.advance(T0 + 10 * MINUTE)
    cluster.cancel(("ns", "t-a"))
    cluster.advance(T0 + 5 * HOUR)
    assert ("Run", "ns", "t-a") in cluster.objects
    reread(cluster)


def test_drain_evicts_spares() -> None:
    cluster = cluster_of(run("r", spares=1), nodes=3)
    cluster.advance(T0 + MINUTE)
    cluster.drain(["a1"])
    state = cluster.world.runs["ns", "r"]
    spares = [lease.slots[0][0] for lease in state.leases.values() if lease.role == "Spare"]
    assert (state.attempt, spares) == (1, ["a2"])
    assert [event.name for event in cluster.events[-2:]] == ["SpareDropped", "SpareAdded"]
    assert "evicted from a1" in cluster.events[-2].message


@pytest.mark.parametrize("saved", [False, True], ids=["at once", "from a file"])
def test_reservation_numbers_continue_when_a_run_is_created_again(saved: bool) -> None:
    """The Reservation of the deleted Run stays, and its promise does not go to the new Run."""
    cluster = cluster_of(run("holds", 24), run("waits", 24))
    assert cluster.world.runs["ns", "waits"].promise is not None
    cluster.cancel(("ns", "waits"))
    if saved:
        cluster = reread(cluster)
    cluster.submit([Document("it", run("waits", 24))])
    promise = cluster.world.runs["ns", "waits"].promise
    assert promise is not None
    assert promise.name == "waits-2"
    assert [key[2] for key, _ in cluster.objects.of("Reservation")] == ["waits-1", "waits-2"]
    (promised,) = [run for run in reread(cluster).world.runs.values() if run.promise]
    assert promised.promise is not None
    assert promised.promise.name == "waits-2"


def test_first_estimate_and_actual_start_are_kept() -> None:
    limit = {"maxDuration": "2h"}
    cluster = cluster_of(run("holder", 24, runtime=limit), run("next", 24, runtime=limit))
    estimate = reread(cluster).world.start_calibration.of(("ns", "next-1"))
    assert estimate is not None
    assert (estimate.at, estimate.mean, estimate.start) == (T0, T0 + 2 * HOUR, None)
    cluster = reread(cluster)
    cluster.advance(T0 + HOUR)
    cluster.complete(("ns", "holder"))
    estimate = reread(cluster).world.start_calibration.of(("ns", "next-1"))
    assert estimate is not None
    assert (estimate.at, estimate.mean, estimate.start) == (T0, T0 + 2 * HOUR, T0 + HOUR)
