"""An API server that refuses writes to single objects: each of them waits alone (H1)."""

from tests.live.cluster.server_process import wait_until
from tests.live.faults.disturbed_workloads import proxy_kubeconfig
from tests.live.faults.fault_cluster import AUDIT_OK, FaultCluster
from tests.live.faults.fault_proxy import RefusingProxy
from tests.live.manager.tenant import Tenant

CODES = (413, 422, 429, 500, 504)


def names(kind: str) -> list[str]:
    return [f"{kind}-{code}" for code in CODES]


def await_event(tenant: Tenant, run: str) -> None:
    wait_until(lambda: "NotWritten" in tenant.event_reasons(run), f"an Event tells the reason of {run}")


def refuse_new_runs(proxy: RefusingProxy, tenant: Tenant) -> None:
    """Has their first decision refused; one more Run for each code comes with them and starts."""
    for code in CODES:
        proxy.codes[tenant.run_path(f"new-{code}")] = code
        tenant.create_run(f"new-{code}", "a", 8)
        tenant.create_run(f"good-{code}", "b", 8)
    for name in names("good"):
        tenant.await_running_pods(name, 1)
    for name in names("new"):
        await_event(tenant, name)
        assert (tenant.phase(name), tenant.pods(name), tenant.leases(name)) == ("", [], [])


def refuse_ends(proxy: RefusingProxy, tenant: Tenant) -> None:
    """Has the end of running Runs refused: they keep what they have, and the others end."""
    for code in CODES:
        proxy.codes[tenant.run_path(f"old-{code}")] = code
        tenant.finish(f"old-{code}")
    for name in names("old"):
        await_event(tenant, name)
    for name in names("good"):
        tenant.finish(name)
    tenant.await_phase("Completed", *names("good"))
    for name in names("old"):
        assert (tenant.phase(name), tenant.closure_reasons(name)) == ("Running", ["open"])


def test_objects_that_the_server_refuses_wait_alone(fault_cluster: FaultCluster) -> None:
    """When the server takes them again, an edit ends their pause and all come to their end."""
    tenant = fault_cluster.create_tenant()
    tenant.add_nodes("nv", 15)
    for team in ("a", "b"):
        tenant.create_budget(team, 80)
    fault_cluster.delete_election_lease()
    with (
        RefusingProxy(fault_cluster.plane) as proxy,
        fault_cluster.start_manager(kubeconfig=proxy_kubeconfig(fault_cluster, proxy)) as manager,
    ):
        for name in names("old"):
            tenant.create_run(name, "a", 8)
            tenant.await_running_pods(name, 1)
        refuse_new_runs(proxy, tenant)
        refuse_ends(proxy, tenant)
        assert set(proxy.fault_counts) == {str(code) for code in CODES}
        proxy.codes.clear()
        for name in (*names("new"), *names("old")):
            tenant.plane.rest.merge(tenant.run_path(name), {"spec": {"runtime": {"maxDuration": "9h"}}})
        tenant.await_phase("Completed", *names("old"))
        for name in names("new"):
            tenant.await_running_pods(name, 1)
        wait_until(lambda: fault_cluster.audit() == AUDIT_OK, "all invariants hold")
        assert not manager.has_ended, manager.log.read_text()
        assert not manager.has_logged("Traceback"), manager.log.read_text()
        assert tenant.plane.rest.delete(tenant.runs_path).accepted
