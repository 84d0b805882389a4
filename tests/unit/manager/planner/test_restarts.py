"""A manager that starts while Runs run finds nothing wrong with what an earlier one decided."""

from jobtree.api.validation.object_parser import to_document
from jobtree.kube.http.api_resources import BUDGETS
from tests.unit.core.build import budget, envelope
from tests.unit.manager.cluster import Manager, Server
from tests.unit.manager.stage import (
    TEMPLATE,
    finish_pods,
    leases_of,
    phase,
    put_budget,
    put_nodes,
    put_policy,
    put_run,
)


def test_a_payer_that_no_longer_lends_breaks_no_invariant_after_a_restart() -> None:
    """No object says whether the lender could be asked when the lease began (I2), and it keeps its loan."""
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
    again = Manager(server)
    again.settle()
    assert (phase(server, "lent"), phase(server, "other")) == ("Running", "Running")
    assert again.violations == []
    finish_pods(server, "other")
    again.settle()
    assert again.violations == []
