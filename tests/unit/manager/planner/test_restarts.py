"""A restarted manager finds no violation in the decisions of an earlier one."""

import pytest

from jobtree.api.schema.quantities import SECOND
from jobtree.api.validation.object_parser import to_document
from jobtree.kube.http.api_resources import BUDGETS, NODES, RESERVATIONS
from tests.unit.core.build import budget, envelope
from tests.unit.manager.cluster_objects import (
    TEMPLATE,
    finish_pods,
    leases_of,
    phase,
    put_budget,
    put_nodes,
    put_policy,
    put_run,
    states,
)
from tests.unit.manager.memory_cluster import Manager, Server, StoppedError


def test_payer_that_no_longer_lends_is_no_violation_after_a_restart() -> None:
    """No object says whether the lender lent when the lease began (I2), and the Run keeps the lease."""
    server = Server()
    put_policy(server, TEMPLATE)
    put_nodes(server, "nv-a", 2)
    put_budget(server, "lender", 8, lending={"allow": True, "to": ["borrower"]})
    put_run(server, "lent", "borrower", 8, sponsors=["lender"])
    put_run(server, "other", "lender", 8)
    manager = Manager(server)
    manager.settle()
    (lease,) = leases_of(server, "lent")
    assert (lease["spec"]["class"], phase(server, "other")) == ("Borrowed", "Reserved")
    closed = to_document(budget("lender", envelope(16)))
    server.change(BUDGETS.path(name="lender"), {"spec": closed["spec"]}, "", merge=False)
    restarted = Manager(server)
    restarted.settle()
    assert (phase(server, "lent"), phase(server, "other")) == ("Running", "Running")
    assert restarted.violations == []
    finish_pods(server, "other")
    restarted.settle()
    assert restarted.violations == []


def slips_of_stopped_start(killed_after: int) -> list[object]:
    """A Run that started as promised loses its node, and the manager dies after so many more writes."""
    server = Server()
    put_policy(server)
    (name,) = put_nodes(server, "nv-a", 1)
    put_budget(server, "org", 16)
    put_run(server, "old", "org", 8)
    manager = Manager(server)
    manager.settle()
    put_run(server, "next", "org", 8)
    manager.settle()
    server.set_clock(SECOND)
    manager.settle()
    assert (phase(server, "next"), states(server)["next-1"]) == ("Running", "Activated")
    taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
    server.change(NODES.path(name=name), {"spec": {"taints": [taint]}}, "", merge=True)
    manager = Manager(server, killed_after)
    try:
        manager.settle()
    except StoppedError:
        manager = Manager(server)
    manager.settle()
    assert phase(server, "next") == "Reserved"
    reservations = {one["metadata"]["name"]: one for one in server.all(RESERVATIONS)}
    return [slip["reason"] for slip in reservations["next-1"]["status"].get("slips", [])]


@pytest.mark.parametrize("killed_after", range(12))
def test_slip_of_a_start_that_was_stopped_too_soon_survives_a_restart(killed_after: int) -> None:
    """R5: it is recorded once, on the Reservation that was activated, whenever the manager dies."""
    assert slips_of_stopped_start(killed_after) == ["CapacityLost"]
