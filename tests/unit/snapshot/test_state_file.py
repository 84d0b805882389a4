"""The state file tells everything: reading it and saving it changes nothing, and plans the same."""

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
    made = SimulatedCluster(T0, key=KEY)
    made.load([Document("it", body) for body in (*map(node, [f"a{n}" for n in range(nodes)]), budget())])
    if bodies:
        made.submit([Document("it", body) for body in bodies])
    return made


def reread(cluster: SimulatedCluster) -> SimulatedCluster:
    """The cluster as its own file tells it; the file of that is the same."""
    text = write_cluster(cluster)
    again = SimulatedCluster(cluster.now, key=KEY)
    again.load([one for one in read_documents(text, "file") if one.body["kind"] != "Clock"])
    assert write_cluster(again) == text
    return again


def progress(cluster: SimulatedCluster) -> dict[str, tuple[object, ...]]:
    """What a Run's status tells beside its leases: of one that runs, also when it may change and resume."""
    found: dict[str, tuple[object, ...]] = {}
    for (_, name), one in cluster.world.runs.items():
        runs = one.phase == "Running"
        pause = max(0, one.resume_at - cluster.now) if runs else 0
        changed = one.changed_at if runs else 0
        found[name] = (
            one.phase,
            one.attempt,
            one.restarts,
            changed,
            pause,
            dict(one.rank_slots),
            one.lotteries_lost,
        )
    return found


def same_future(cluster: SimulatedCluster, until: int) -> None:
    """Both go on alike from here."""
    again = reread(cluster)
    assert progress(again) == progress(cluster)
    for one in (cluster, again):
        one.advance(until)
    assert write_cluster(again) == write_cluster(cluster)


def elastic(name: str) -> Body:
    widths = {"minTotalGPUs": 8, "maxTotalGPUs": 24, "stepGPUs": 8}
    return run(name, 8, malleable=widths, runtime={"checkpoint": "10m"})


def test_a_run_that_grows_goes_on_growing_when_it_may() -> None:
    made = cluster_of(elastic("r"))
    made.advance(T0 + 15 * MINUTE)
    same_future(made, T0 + 20 * MINUTE)
    assert made.world.runs["ns", "r"].width == 24


def test_a_pause_between_attempts_and_the_restarts_so_far_are_kept() -> None:
    made = cluster_of(run("r", 16))
    made.advance(T0 + HOUR)
    made.crash(("ns", "r"), 1, 3)
    again = reread(made)
    state = again.world.runs["ns", "r"]
    assert (state.restarts, state.resume_at) == (1, T0 + HOUR + 10_000)
    same_future(made, T0 + 2 * HOUR)


def test_ranks_keep_their_seats_after_a_swap_whatever_their_leases_are_called() -> None:
    made = cluster_of(run("r", 16, spares=1), nodes=4)
    made.advance(T0 + HOUR)
    made.fail(["a0"])
    assert made.world.runs["ns", "r"].rank_slots[0, 0][0] == "a2"
    made.advance(T0 + 2 * HOUR)
    made.fail(["a1"])
    same_future(made, T0 + 3 * HOUR)


def test_pods_without_gpus_have_their_seats_again_and_may_fail() -> None:
    made = reread(cluster_of(run("prep", 0)))
    assert list(made.world.runs["ns", "prep"].rank_slots) == [(0, 0), (0, 1)]
    made.crash(("ns", "prep"), 1, 1)
    assert reread(made).world.runs["ns", "prep"].restarts == 1


def pipeline() -> Body:
    def stage(name: str, **fields: Any) -> Body:  # noqa: ANN401  fields of a stage
        resources = {"gpuType": H100, "totalGPUs": 8}
        return {"name": name, "resources": resources, "runtime": {"maxDuration": "1h"}, **fields}

    joined = {"with": ["a"]}
    return run("t", stages=[stage("a"), stage("b", **joined), stage("c", after=["a", "b"])])


@pytest.mark.parametrize("minutes", [0, 30, 60, 90, 120])
def test_a_tree_with_a_gang_is_the_same_at_every_stage(minutes: int) -> None:
    made = cluster_of(run("holds", 24, runtime={"maxDuration": "30m"}), pipeline())
    made.advance(T0 + minutes * MINUTE)
    same_future(made, T0 + 4 * HOUR)


def test_the_one_reservation_of_a_gang_gives_each_member_its_part_back() -> None:
    made = cluster_of(run("holds", 24, runtime={"maxDuration": "30m"}), pipeline())
    again = reread(made)
    for name in ("t-a", "t-b"):
        assert again.world.runs["ns", name].promise == made.world.runs["ns", name].promise is not None


def test_the_lotteries_of_a_gang_are_kept_member_by_member() -> None:
    made = cluster_of(*(run(f"x{n}") for n in range(2)), nodes=2)
    made.advance(T0 + MINUTE)
    made.submit([Document("it", pipeline())])
    made.advance(T0 + 3 * HOUR)
    (status,) = [body["status"] for key, body in made.objects.of("Reservation") if key[2] == "t-1"]
    assert (len(status["lotteries"]), "lottery" in status) == (1, True)
    reread(made)


def test_budgets_that_came_later_do_not_make_leases_of_before_wrong() -> None:
    made = SimulatedCluster(T0, key=KEY)
    parent = budget()
    child = run("r")
    child["spec"]["owner"] = "org:a"
    made.load([Document("it", body) for body in (node("a0"), parent, child)])
    made.advance(T0 + HOUR)
    other = budget()
    other["metadata"]["name"], other["spec"] = "own", {"owner": "org:a", "parents": [], "envelopes": []}
    made.submit([Document("it", other)])
    assert reread(made).violations() == []


def test_a_deleted_stage_comes_back_in_the_file_and_works() -> None:
    made = cluster_of(pipeline())
    made.advance(T0 + 10 * MINUTE)
    made.cancel(("ns", "t-a"))
    made.advance(T0 + 5 * HOUR)
    assert ("Run", "ns", "t-a") in made.objects
    reread(made)


def test_a_drain_evicts_spares_as_well() -> None:
    cluster = cluster_of(run("r", spares=1), nodes=3)
    cluster.advance(T0 + MINUTE)
    cluster.drain(["a1"])
    state = cluster.world.runs["ns", "r"]
    spares = [lease.slots[0][0] for lease in state.leases.values() if lease.role == "Spare"]
    assert (state.attempt, spares) == (1, ["a2"])
    assert [event.name for event in cluster.events[-2:]] == ["SpareDropped", "SpareAdded"]
    assert "evicted from a1" in cluster.events[-2].message


@pytest.mark.parametrize("saved", [False, True], ids=["at once", "from a file"])
def test_reservations_are_numbered_on_for_a_run_that_is_made_again(saved: bool) -> None:
    """What was promised to another Run of that name stays on record, and is not this one's."""
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
    (again,) = [one for one in reread(cluster).world.runs.values() if one.promise]
    assert again.promise is not None
    assert again.promise.name == "waits-2"


def test_what_a_run_was_told_first_stays_in_the_file_and_what_came_of_it() -> None:
    limit = {"maxDuration": "2h"}
    cluster = cluster_of(run("holder", 24, runtime=limit), run("next", 24, runtime=limit))
    told = reread(cluster).world.start_calibration.of(("ns", "next-1"))
    assert told is not None
    assert (told.at, told.mean, told.start) == (T0, T0 + 2 * HOUR, None)
    cluster = reread(cluster)
    cluster.advance(T0 + HOUR)
    cluster.complete(("ns", "holder"))
    told = reread(cluster).world.start_calibration.of(("ns", "next-1"))
    assert told is not None
    assert (told.at, told.mean, told.start) == (T0, T0 + 2 * HOUR, T0 + HOUR)
