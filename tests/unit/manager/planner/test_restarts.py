"""A restarted manager finds no violation in the decisions of an earlier one."""

from jobtree.api.validation.object_parser import to_document
from jobtree.kube.http.api_resources import BUDGETS
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
)
from tests.unit.manager.memory_cluster import Manager, Server


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
