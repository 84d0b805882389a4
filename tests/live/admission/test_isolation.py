"""One tenant holds up no other: Runs that cannot be stored, names that are taken (H1, H3)."""

from tests.live.admission.admission_cluster import AdmissionCluster
from tests.live.admission.object_manifests import MAIN_CONTAINER, run_manifest
from tests.live.cluster.server_process import wait_until
from tests.live.crds.manifests import Manifest
from tests.live.manager.tenant import Tenant

ETCD_LIMIT = 1_572_864  # bytes of a request
SOON_SECONDS = 10.0


def large_run(tenant: Tenant, name: str, size: int) -> Manifest:
    env = [{"name": "A", "value": "x" * size}]
    return run_manifest(
        tenant, name, "mine", template={"spec": {"containers": [{**MAIN_CONTAINER, "env": env}]}}
    )


def create_largest_run(tenant: Tenant, name: str) -> None:
    """Creates a Run that etcd stores and that has no room for a status."""
    fits, too_large = ETCD_LIMIT - 16_384, ETCD_LIMIT
    while too_large - fits > 64:
        size = (fits + too_large) // 2
        answer = tenant.plane.rest.post(tenant.runs_path, large_run(tenant, name, size))
        if answer.accepted and too_large - size > 64:
            tenant.cancel(name)
            wait_until(
                lambda: not tenant.plane.rest.get(tenant.run_path(name)).accepted, "the Run is deleted"
            )
        fits, too_large = (size, too_large) if answer.accepted else (fits, size)
    if not tenant.plane.rest.get(tenant.run_path(name)).accepted:
        assert tenant.plane.rest.post(tenant.runs_path, large_run(tenant, name, fits)).accepted


def test_run_without_room_for_a_status_holds_up_no_other_run(
    admission_cluster: AdmissionCluster, tenant: Tenant
) -> None:
    """H1: the other Run starts at once, and the large one says why it waits and can be deleted."""
    create_largest_run(tenant, "large")
    tenant.create_run("canary", "theirs", 8)
    tenant.await_running_pods("canary", 1, within=SOON_SECONDS)
    wait_until(lambda: "NotWritten" in tenant.event_reasons("large"), "an Event tells the reason")
    assert (tenant.pods("large"), tenant.leases("large"), tenant.phase("large")) == ([], [], "")
    assert admission_cluster.manager_is_healthy(), admission_cluster.manager.log.read_text()
    tenant.cancel("large")
    wait_until(lambda: not tenant.plane.rest.get(tenant.run_path("large")).accepted, "the Run is deleted")
    tenant.cancel("canary")


def test_run_with_the_name_of_a_stage_survives_the_tree(tenant: Tenant) -> None:
    """H3: the tree says that the name is taken, makes the stage when it is free, and ends only its own."""
    tenant.create_run("t-a", "theirs", 8)
    tenant.await_running_pods("t-a", 1)
    resources = {"gpuType": tenant.flavor, "totalGPUs": 8}
    tree = {"owner": tenant.owner("mine"), "stages": [{"name": "a", "resources": resources}]}
    tenant.create("Run", "t", tree)
    wait_until(lambda: tenant.status("t").get("reason") == "NameTaken", "the tree tells the name")
    tenant.cancel("t")
    wait_until(lambda: not tenant.plane.rest.get(tenant.run_path("t")).accepted, "the tree is deleted")
    assert (tenant.phase("t-a"), tenant.closure_reasons("t-a")) == ("Running", ["open"])
    tenant.create("Run", "t", tree)
    wait_until(lambda: tenant.status("t").get("reason") == "NameTaken", "the tree tells the name again")
    tenant.cancel("t-a")
    wait_until(lambda: tenant.phase("t") == "Running", "the stage is made")
    assert tenant.plane.rest.get(tenant.run_path("t-a")).body["metadata"]["ownerReferences"][0]["name"] == "t"
    tenant.cancel("t")


def test_runs_with_thousands_of_widths_delay_no_other_run(tenant: Tenant) -> None:
    """H2: twenty Runs that could start at any of 4,096 widths; one more width is refused."""
    widths = {"minTotalGPUs": 1, "maxTotalGPUs": 4096, "stepGPUs": 1}
    for number in range(20):
        fields = {"malleable": widths, "runtime": {"checkpoint": "10m"}}
        manifest = run_manifest(tenant, f"wide-{number}", "mine", **fields)
        manifest["spec"]["resources"]["totalGPUs"] = 4096
        assert tenant.plane.rest.post(tenant.runs_path, manifest).accepted
    tenant.add_nodes("nv-z", 1)
    tenant.create_run("canary", "theirs", 8)
    tenant.await_running_pods("canary", 1, within=SOON_SECONDS)
    manifest["spec"]["malleable"] = {**widths, "maxTotalGPUs": 4097}
    manifest["metadata"]["name"] = "too-wide"
    answer = tenant.plane.rest.post(tenant.runs_path, manifest)
    assert (answer.status, "at most 4096 widths" in answer.message) == (422, True)
    assert tenant.plane.rest.delete(tenant.runs_path).accepted


def test_deleted_service_and_run_marked_as_finished(
    admission_cluster: AdmissionCluster, tenant: Tenant
) -> None:
    """H3: the Service is made again; a Run that break-glass marks as Failed gives its GPUs back."""
    tenant.create_run("r", "mine", 16)
    tenant.await_running_pods("r", 2)
    services_path = f"/api/v1/namespaces/{tenant.name}/services"
    (service,) = tenant.items(services_path)
    name, uid = service["metadata"]["name"], service["metadata"]["uid"]
    assert tenant.plane.rest.delete(f"{services_path}/{name}").accepted
    wait_until(
        lambda: [item["metadata"]["uid"] != uid for item in tenant.items(services_path)] == [True],
        "the Service is made again",
    )
    marked = admission_cluster.break_glass.merge(
        f"{tenant.run_path('r')}/status", {"status": {"phase": "Failed"}}
    )
    assert marked.accepted, marked.message
    wait_until(lambda: tenant.closure_reasons("r") == ["Failed"], "its lease is closed")
    wait_until(lambda: tenant.running_pods("r") == [], "its pods are ended")
    assert tenant.phase("r") == "Failed"
    tenant.create_run("next", "theirs", 16)
    tenant.await_running_pods("next", 2)
    assert admission_cluster.manager_is_healthy(), admission_cluster.manager.log.read_text()
    tenant.cancel("next")


def test_gang_of_many_groups_is_written_in_the_short_form(tenant: Tenant) -> None:
    """H2: its status has an entry for each lease, and its end closes all of them."""
    groups = 520
    tenant.add_nodes("nv-m", groups // 8)
    tenant.create_budget("many", groups)
    tenant.create_run("many", "many", groups, locality={"groupGPUs": 1})
    wait_until(lambda: len(tenant.leases("many")) == groups, "all leases are written")
    allocation = tenant.status("many")["allocation"]
    assert (len(allocation["entries"]), len(allocation["terms"])) == (groups, 1)
    assert not allocation.get("leases")
    tenant.cancel("many")
    wait_until(lambda: tenant.closure_reasons("many") == ["Cancelled"] * groups, "all leases are closed")
    wait_until(lambda: not tenant.plane.rest.get(tenant.run_path("many")).accepted, "the Run is deleted")
