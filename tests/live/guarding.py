"""A cluster with Jobtree's admission policies and a running manager, and people whose rights RBAC gives.

Policies hold some time after they are applied: ``await_policies`` asks for something that each must refuse,
without meaning it, until it is refused.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TypeVar

from tests.live.control_plane import ControlPlane
from tests.live.fleet import Fleet
from tests.live.managing import NAMESPACE, Manager, Scene, await_account, install, set_policy
from tests.live.manifests import API_VERSION, Manifest, lease, run
from tests.live.process import wait_until
from tests.live.rest import Answer, Rest

GROUP = API_VERSION.partition("/")[0]
MANAGED = f"{GROUP}/managed"
BREAK_GLASS = "jobtree:break-glass"
OLD_CLAIMS = {"runtime-config": "resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true"}
"""Flags of an API server that also takes claims on devices in the words of older ones."""
HASTY = "structuralNotice: 1s\nminNotice: 1s\nmaxNotice: 2s\nminRuntime: 0s\nnodeGrace: 1s\n"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
MAIN = {"name": "main", "image": "example.com/work:1"}
LEASES = f"/apis/{API_VERSION}/gpuleases"
BUDGETS = f"/apis/{API_VERSION}/budgets"

BOTH_PATHS = ("policies", "webhook")
"""As ``PATHS`` of a module: its tests run with admission policies, and with the webhook in their place."""

# More than a careful administrator gives to a researcher: the policies must hold where RBAC was generous.
GENEROUS = [
    {"apiGroups": [GROUP], "resources": ["runs", "reservations"], "verbs": ["*"]},
    {"apiGroups": [GROUP], "resources": ["runs/status", "reservations/status"], "verbs": ["*"]},
    {"apiGroups": [""], "resources": ["pods", "pods/ephemeralcontainers", "services"], "verbs": ["*"]},
    {"apiGroups": ["apps", "batch"], "resources": ["deployments", "jobs"], "verbs": ["*"]},
    {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceclaims", "resourceclaimtemplates"],
        "verbs": ["*"],
    },
]
GENEROUS_EVERYWHERE = [
    {"apiGroups": [GROUP], "resources": ["gpuleases", "gpuleases/status", "budgets/status"], "verbs": ["*"]},
    {"apiGroups": [GROUP], "resources": ["budgets"], "verbs": ["get", "list", "watch"]},
]


Test = TypeVar("Test", bound=Callable[..., None])


def only_with(path: str) -> Callable[[Test], Test]:
    """Of a module with several paths: a test that makes sense on one of them."""

    def mark(test: Test) -> Test:
        test.__dict__["paths"] = (path,)
        return test

    return mark


class Guarded:
    """The cluster, its manager, and corners of it for single tests."""

    def __init__(self, plane: ControlPlane, fleet: Fleet, manager: Manager) -> None:
        self.plane = plane
        self.fleet = fleet
        self.manager = manager
        self._numbers = count(1)

    def scene(self, **labels: str) -> Scene:
        """A namespace of the test's own; it is a managed one, unless told otherwise."""
        scene = Scene(self.plane, self.fleet, f"g{next(self._numbers)}")
        label(self.plane, scene.name, {MANAGED: "true", **labels})
        return scene

    def person(self, scene: Scene, name: str, *teams: str) -> Rest:
        """Somebody who may do nearly everything in this namespace, and spend for these teams of it."""
        user = f"{name}@{scene.name}"
        grant(self.plane, user, GENEROUS, namespace=scene.name)
        grant(self.plane, user, GENEROUS_EVERYWHERE)
        if teams:
            grant_spend(self.plane, user, *(scene.owner(team) for team in teams))
        return self.plane.rest_as(user)

    @property
    def break_glass(self) -> Rest:
        return self.plane.rest_as("admin", "system:masters", BREAK_GLASS)

    def is_sound(self) -> bool:
        """Whether the manager is alive and nothing has surprised it."""
        return not self.manager.has_ended and not self.manager.said("Traceback")

    def gave_as_reason(self, text: str) -> bool:
        """Whether the manager has told that it could not do something, for this reason."""
        return any(text in str(line.get("why", "")) for line in self.manager.lines())


@contextmanager
def guarded_cluster() -> Iterator[Guarded]:
    with ControlPlane(OLD_CLAIMS) as plane:
        kubeconfig = install(plane)
        set_policy(plane, HASTY)
        plane.start_controllers()
        plane.start_scheduler()
        with Manager(plane, kubeconfig) as manager:
            fleet = plane.kwok()
            await_policies(plane)
            yield Guarded(plane, fleet, manager)


def label(plane: ControlPlane, namespace: str, labels: dict[str, str]) -> None:
    answer = plane.rest.merge(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": labels}})
    assert answer.accepted, answer.message


def grant(plane: ControlPlane, user: str, rules: list[Manifest], namespace: str = "") -> None:
    """These rules for this user, in one namespace or everywhere; they hold when this returns."""
    kind = "Role" if namespace else "ClusterRole"
    where = f"{RBAC}/namespaces/{namespace}" if namespace else RBAC
    name = f"{user.replace('@', '-')}-{count_of(plane, f'{where}/{kind.lower()}s')}"
    role = {"metadata": {"name": name}, "rules": rules}
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    for plural, document in ((f"{kind.lower()}s", role), (f"{kind.lower()}bindings", binding)):
        answer = plane.rest.post(f"{where}/{plural}", document)
        assert answer.accepted, answer.message
    wait_until(lambda: all(may(plane, user, rule, namespace) for rule in rules), f"{user} may do that")


def grant_spend(plane: ControlPlane, user: str, *owners: str) -> None:
    """The verb ``spend`` for these owners; for all of them, where none is named."""
    rule: Manifest = {"apiGroups": [GROUP], "resources": ["budgets"], "verbs": ["spend"]}
    grant(plane, user, [{**rule, "resourceNames": list(owners)} if owners else rule])


def may(plane: ControlPlane, user: str, rule: Manifest, namespace: str) -> bool:
    resource, _, subresource = rule["resources"][0].partition("/")
    asked = {
        "group": rule["apiGroups"][0],
        "resource": resource,
        "subresource": subresource,
        "verb": rule["verbs"][0].replace("*", "create"),
        "name": rule.get("resourceNames", [""])[0],
        "namespace": namespace,
    }
    review = {"spec": {"user": user, "resourceAttributes": asked}}
    answer = plane.rest.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer.body["status"]["allowed"])


def count_of(plane: ControlPlane, path: str) -> int:
    return len(plane.rest.get(path).body["items"])


def pod(name: str, **fields: object) -> Manifest:
    """A pod that asks for nothing; ``fields`` are of its metadata, or of its spec where they belong there."""
    in_spec = ("containers", "initContainers", "nodeName", "tolerations")
    spec = {"containers": [MAIN], **{key: fields.pop(key) for key in in_spec if key in fields}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **fields}, "spec": spec}


def gpu_container(kind: str = "limits", resource: str = "nvidia.com/gpu") -> Manifest:
    amounts = {resource: "1"}
    # Of an extended resource, requests alone are refused by the server: a limit must be the same.
    resources = {"limits": amounts, **({"requests": amounts} if kind == "requests" else {})}
    return {**MAIN, "name": "gpu", "resources": resources}


def claim(device_class: str) -> Manifest:
    requests = [{"name": "gpu", "exactly": {"deviceClassName": device_class}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "gpu"},
        "spec": {"devices": {"requests": requests}},
    }


def run_of(scene: Scene, name: str, team: str, **fields: object) -> Manifest:
    """A Run of 8 GPUs for a team of this scene."""
    spec = {
        "owner": scene.owner(team),
        "resources": {"gpuType": scene.flavor, "totalGPUs": 8},
        **fields,
    }
    metadata = {"name": name, "namespace": scene.name}
    return {"apiVersion": API_VERSION, "kind": "Run", "metadata": metadata, "spec": spec}


def reference(scene: Scene, run: str) -> Manifest:
    """The owner reference by which Jobtree knows pods and stages of this Run."""
    uid = scene.plane.rest.get(scene.path(run)).body["metadata"]["uid"]
    return {"apiVersion": API_VERSION, "kind": "Run", "name": run, "uid": uid, "controller": True}


def runs_of(scene: Scene) -> str:
    return f"/apis/{API_VERSION}/namespaces/{scene.name}/runs"


def pods_of(scene: Scene) -> str:
    return f"/api/v1/namespaces/{scene.name}/pods"


def claims_of(namespace: str) -> str:
    return f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"


def refused(answer: Answer, *says: str) -> None:
    """By admission or by the definition of its kind, and for that reason."""
    assert answer.status in (403, 422), f"{answer.status}: {answer.body}"
    for text in says:
        assert text in answer.message, answer.message


PROBE = "managed-probe"


def await_policies(plane: ControlPlane) -> None:
    """Until every policy refuses what it must."""
    namespace = {"metadata": {"name": PROBE, "labels": {MANAGED: "true"}}}
    assert plane.rest.post("/api/v1/namespaces", namespace).accepted
    await_account(plane, PROBE)
    mine = run()
    mine["metadata"] = {"name": "probe"}
    pods = f"/api/v1/namespaces/{PROBE}/pods"
    probes: list[tuple[str, str, Manifest]] = [
        ("jobtree-runs", f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/runs", mine),
        ("jobtree-records", LEASES, lease()),
        ("jobtree-gpu-pods", pods, pod("probe", containers=[gpu_container()])),
        ("jobtree-gpu-claims", claims_of(PROBE), claim("gpu.nvidia.com")),
        ("jobtree-pods", pods, pod("probe", labels={f"{GROUP}/role": "rank"})),
    ]
    for policy, path, manifest in probes:
        wait_until(lambda: is_refused_by(plane, policy, path, manifest), policy)  # noqa: B023


def is_refused_by(plane: ControlPlane, policy: str, path: str, manifest: Manifest) -> bool:
    message = plane.rest.post(f"{path}?dryRun=All", manifest).message
    return policy in message and "failed calling webhook" not in message
