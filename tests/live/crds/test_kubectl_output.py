"""The four kinds in kubectl: columns, short names, explanations and the status subresource."""

from collections.abc import Iterator

import pytest

from tests.live.cluster.control_plane import ControlPlane
from tests.live.crds.installed_crds import collection_path, object_path
from tests.live.crds.manifests import Manifest, budget, lease, reservation, run

STATUSES = {
    "Run": {
        "phase": "Reserved",
        "width": {"min": 8, "max": 16, "desired": 16, "allocated": 0},
        "earliestStart": "2026-01-05T10:00:00Z",
        "reason": "ConcurrencyExhausted",
    },
    "Reservation": {"state": "Pending", "forecast": {"deficitGPUs": 8, "confidence": "guaranteed"}},
    "Lease": {"end": "2026-01-05T12:00:00Z", "closureReason": "Completed"},
}


@pytest.fixture(scope="module", autouse=True)
def objects(jobtree_cluster: ControlPlane) -> Iterator[dict[str, Manifest]]:
    """One object of each kind; all but the Budget have a status."""
    manifests = {manifest["kind"]: manifest for manifest in (budget(), run(), reservation(), lease())}
    for kind, manifest in manifests.items():
        created = jobtree_cluster.rest.post(collection_path(manifest), manifest)
        assert created.accepted, created.message
        if kind in STATUSES:
            patch = {"status": STATUSES[kind]}
            updated = jobtree_cluster.rest.merge(f"{object_path(manifest)}/status", patch)
            assert updated.accepted, updated.message
    yield manifests
    for manifest in manifests.values():
        jobtree_cluster.rest.delete(object_path(manifest))


@pytest.mark.parametrize(
    ("resource", "columns"),
    [
        ("budgets", {"NAME": "rai", "OWNER": "org:ai:rai"}),
        (
            "runs",
            {
                "NAME": "train",
                "OWNER": "org:ai:rai:sys",
                "PHASE": "Reserved",
                "GPUS": "0",
                "DESIRED": "16",
                "START": "2026-01-05T10:00:00Z",
                "REASON": "ConcurrencyExhausted",
            },
        ),
        (
            "reservations",
            {
                "NAME": "train-1",
                "RUN": "train",
                "STATE": "Pending",
                "START": "2026-01-05T10:00:00Z",
                "DEFICIT": "8",
                "CONFIDENCE": "guaranteed",
            },
        ),
        (
            "gpuleases",
            {
                "NAME": "default-train-1",
                "NAMESPACE": "default",
                "RUN": "train",
                "PAYER": "org:ai:rai",
                "CLASS": "Shared",
                "ROLE": "Active",
                "START": "2026-01-05T09:00:00Z",
                "END": "2026-01-05T12:00:00Z",
                "CLOSED": "Completed",
            },
        ),
    ],
)
def test_kubectl_get_prints_columns(
    jobtree_cluster: ControlPlane, resource: str, columns: dict[str, str]
) -> None:
    header, row = jobtree_cluster.kubectl("get", resource).stdout.splitlines()
    shown = dict(zip(header.split(), row.split(), strict=True))
    assert shown.pop("AGE")
    assert shown == columns


@pytest.mark.parametrize(
    ("short", "name"),
    [
        ("gl", "lease.rq.davidlangworthy.io/default-train-1"),
        ("gpulease", "lease.rq.davidlangworthy.io/default-train-1"),
        ("bud", "budget.rq.davidlangworthy.io/rai"),
        ("rsv", "reservation.rq.davidlangworthy.io/train-1"),
        ("run", "run.rq.davidlangworthy.io/train"),
    ],
)
def test_kubectl_get_accepts_short_names(jobtree_cluster: ControlPlane, short: str, name: str) -> None:
    assert jobtree_cluster.kubectl("get", short, "-o", "name").stdout.split() == [name]


def test_leases_without_a_group_are_those_of_kubernetes(jobtree_cluster: ControlPlane) -> None:
    names = jobtree_cluster.kubectl("get", "leases,lease", "-n", "kube-system", "-o", "name").stdout.split()
    assert names
    assert all(name.startswith("lease.coordination.k8s.io/") for name in names)


def test_category_lists_all_kinds(jobtree_cluster: ControlPlane) -> None:
    names = jobtree_cluster.kubectl("get", "jobtree", "-o", "name").stdout.split()
    kinds = sorted(name.partition(".")[0] for name in names)
    assert kinds == ["budget", "lease", "reservation", "run"]


@pytest.mark.parametrize(
    ("resource", "namespaced"), [("budgets", "false"), ("gpuleases", "false"), ("runs", "true")]
)
def test_kind_is_namespaced_or_cluster_scoped(
    jobtree_cluster: ControlPlane, resource: str, namespaced: str
) -> None:
    listed = jobtree_cluster.kubectl("api-resources", f"--namespaced={namespaced}", "-o", "name")
    assert f"{resource}.rq.davidlangworthy.io" in listed.stdout.split()


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ("budgets", "the GPUs and GPU-hours that a team may use"),
        ("runs.spec.owner", "org:ai:rai:sys"),
        ("runs.spec.runtime.checkpoint", "30m"),
        ("runs.spec.locality.groupGPUs", "GPUs of one group, which must share a domain"),
        ("reservations.spec.commitment", "hex"),
        ("gpuleases.spec.slots", "gpu-a-01#0-7"),
    ],
)
def test_kubectl_explain_describes_fields(jobtree_cluster: ControlPlane, field: str, says: str) -> None:
    group = ("--api-version", "rq.davidlangworthy.io/v1")
    assert says in " ".join(jobtree_cluster.kubectl("explain", field, *group).stdout.split())


def test_status_is_a_subresource(jobtree_cluster: ControlPlane, objects: dict[str, Manifest]) -> None:
    path = object_path(objects["Run"])
    before = jobtree_cluster.rest.get(path).body
    merged = jobtree_cluster.rest.merge(path, {"status": {"phase": "Completed"}})
    assert merged.body["status"] == before["status"]
    patched = jobtree_cluster.rest.merge(f"{path}/status", {"spec": {"spares": 9}, "status": {"attempt": 1}})
    assert patched.body["spec"] == before["spec"]
    assert patched.body["status"]["attempt"] == 1
    assert patched.body["metadata"]["generation"] == before["metadata"]["generation"]


def test_status_of_a_new_object_is_ignored(jobtree_cluster: ControlPlane) -> None:
    manifest = run() | {"status": {"phase": "Completed"}}
    manifest["metadata"]["name"] = "new-with-status"
    answer = jobtree_cluster.rest.post(f"{collection_path(manifest)}?dryRun=All", manifest)
    assert answer.accepted, answer.message
    assert "status" not in answer.body
