"""The warnings of a simulated cluster: at once, to everybody who is newly at risk (R11, R12)."""

from jobtree.api.documents.document_stream import Document
from jobtree.api.schema.quantities import MINUTE
from jobtree.simulation.cluster.simulated_cluster import SimulatedCluster
from jobtree.snapshot.state_file import parse_cluster, write_cluster
from tests.unit.core.build import H100, T0
from tests.unit.snapshot.test_state_file import API, Body, budget, node, run


def team(name: str) -> Body:
    envelope = {"name": "main", "flavor": H100, "concurrency": 16}
    spec = {"owner": name, "envelopes": [envelope]}
    return {"apiVersion": API, "kind": "Budget", "metadata": {"name": name}, "spec": spec}


def of_team(name: str, owner: str) -> Body:
    body = run(name, 16)
    body["spec"]["owner"] = owner
    return body


def submit(cluster: SimulatedCluster, *bodies: Body) -> list[tuple[str, str]]:
    """Submits objects; returns the names of the events that follow, with their Runs."""
    told = len(cluster.events)
    cluster.submit([Document(f"test {number}", body) for number, body in enumerate(bodies)])
    return [(event.name, event.run[1]) for event in cluster.events[told:]]


def test_when_an_earlier_promise_is_withdrawn_who_is_drawn_for_the_next_instead_is_told_at_once() -> None:
    cluster = SimulatedCluster(T0, key=bytes(32))
    submit(cluster, node("a1"), node("a2"), budget(), team("x"), team("y"), run("old", 16))
    assert submit(cluster, of_team("first", "x")) == [("Reserved", "first"), ("AtRisk", "old")]
    assert submit(cluster, of_team("second", "y")) == [("Reserved", "second"), ("AtRisk", "first")]
    told = len(cluster.events)
    cluster.cancel(("ns", "first"))
    (warning,) = [event for event in cluster.events[told:] if event.name == "AtRisk"]
    assert (warning.run, warning.message) == (
        ("ns", "old"),
        "reservation second-1 is due at 2026-01-05T13:00:00Z; probability of being stopped: 1",
    )


def test_a_cluster_that_is_read_again_does_not_warn_twice() -> None:
    cluster = SimulatedCluster(T0, key=bytes(32))
    submit(cluster, node("a1"), node("a2"), budget(), team("x"), run("old", 16))
    submit(cluster, of_team("first", "x"))
    again = parse_cluster(write_cluster(cluster), "test", SimulatedCluster)
    assert submit(again, team("y")) == []
    assert submit(again, of_team("second", "y")) == [("Reserved", "second"), ("AtRisk", "first")]


def slips_after_failure(minutes: int) -> list[dict[str, str]]:
    """``first`` starts on its promised date; so many minutes later it loses its nodes."""
    cluster = SimulatedCluster(T0, key=bytes(32))
    submit(cluster, node("a1"), node("a2"), budget(), team("x"), run("old", 16))
    submit(cluster, of_team("first", "x"))
    date = cluster.world.runs["ns", "first"].promise
    assert date is not None
    assert date.at is not None
    cluster.advance(date.at + minutes * MINUTE)
    cluster.fail(["a1", "a2"])
    body = cluster.objects.get(("Reservation", "ns", "first-1"))
    assert body is not None
    assert body["status"]["state"] == "Activated"
    slips: list[dict[str, str]] = body["status"].get("slips", [])
    return slips


def test_a_start_that_is_stopped_too_soon_is_a_slip_of_its_reservation() -> None:
    """R5: without a checkpoint, a promise is kept if its Run is not stopped for 30 minutes."""
    (slip,) = slips_after_failure(29)
    assert slip == {"reason": "CapacityLost", "from": "2026-01-05T11:00:00Z"}


def test_a_start_that_is_stopped_after_30_minutes_is_no_slip() -> None:
    assert slips_after_failure(30) == []
