"""Promises whose date has passed are judged by leases, and firm and conditional ones apart (R5, I8)."""

from jobtree.api.kinds.reservation import Reservation
from jobtree.api.schema.quantities import MINUTE
from jobtree.api.validation.object_parser import parse_object
from jobtree.cli.tasks.audit_findings import all_leases
from jobtree.core.reporting.kept_promises import Judgement, judge_promises
from jobtree.simulation.cluster.simulated_cluster import SimulatedCluster
from tests.unit.core.build import T0
from tests.unit.snapshot.test_reservation_documents import of_team, submit, team
from tests.unit.snapshot.test_state_file import Body, budget, node, run


def started(*, payer: str = "x") -> SimulatedCluster:
    """``first`` has just started on its promised date."""
    cluster = SimulatedCluster(T0, key=bytes(32))
    submit(cluster, node("a1"), node("a2"), budget(), team(payer), run("old", 16))
    if payer != "x":
        empty = team("x")
        empty["spec"].update(parents=[payer], envelopes=[])
        submit(cluster, empty)
    submit(cluster, of_team("first", "x"))
    promise = cluster.world.runs["ns", "first"].promise
    assert promise is not None
    assert promise.at is not None
    cluster.advance(promise.at)
    return cluster


def reservation(cluster: SimulatedCluster) -> Body:
    body = cluster.objects.get(("Reservation", "ns", "first-1"))
    assert body is not None
    return body


def judged(cluster: SimulatedCluster) -> Judgement:
    parsed = parse_object(reservation(cluster), "test")
    assert isinstance(parsed, Reservation)
    return judge_promises(cluster.world, [parsed], all_leases(cluster))


def counts(judgement: Judgement) -> tuple[int, int, int, int]:
    firm, conditional = judgement.firm, judgement.conditional
    return firm.kept, firm.broken, conditional.kept, conditional.broken


def test_a_promise_is_kept_30_minutes_after_its_date_and_not_before() -> None:
    cluster = started()
    cluster.advance(cluster.now + 30 * MINUTE - 1)
    assert counts(judged(cluster)) == (0, 0, 0, 0)
    cluster.advance(cluster.now + 1)
    assert (counts(judged(cluster)), judged(cluster).violations) == ((1, 0, 0, 0), [])


def test_a_promise_on_budget_of_the_family_is_counted_apart() -> None:
    cluster = started(payer="parent")
    cluster.advance(cluster.now + 30 * MINUTE)
    assert counts(judged(cluster)) == (0, 0, 1, 0)


def test_a_run_that_was_stopped_too_soon_breaks_its_promise_and_a_missing_slip_is_a_violation() -> None:
    cluster = started()
    cluster.advance(cluster.now + 10 * MINUTE)
    cluster.fail(["a1", "a2"])
    cluster.advance(cluster.now + 30 * MINUTE)
    assert (counts(judged(cluster)), judged(cluster).violations) == ((0, 1, 0, 0), [])
    del reservation(cluster)["status"]["slips"]
    (violation,) = judged(cluster).violations
    assert str(violation) == (
        "I8: ns/first-1 was due at 2026-01-05T11:00:00Z, its Run was stopped at 2026-01-05T11:10:00Z "
        "(CapacityLost), and no slip says so"
    )


def test_a_run_that_did_not_start_on_its_date_is_a_violation() -> None:
    cluster = started()
    cluster.advance(cluster.now + 30 * MINUTE)
    reservation(cluster)["spec"]["earliestStart"] = "2026-01-05T10:00:00Z"
    (violation,) = judged(cluster).violations
    assert "its Run had 0 of 16 paid GPUs" in str(violation)


def test_a_run_that_completed_in_time_kept_its_promise() -> None:
    cluster = started()
    cluster.advance(cluster.now + MINUTE)
    cluster.complete(("ns", "first"))
    cluster.advance(cluster.now + 30 * MINUTE)
    assert counts(judged(cluster)) == (1, 0, 0, 0)
