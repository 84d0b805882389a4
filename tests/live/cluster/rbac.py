"""Gives users of a test cluster rights, and waits until the API server knows them."""

from tests.live.cluster.control_plane import ControlPlane
from tests.live.cluster.server_process import wait_until
from tests.live.crds.manifests import GROUP, Manifest

RBAC = "/apis/rbac.authorization.k8s.io/v1"


def grant(plane: ControlPlane, user: str, rules: list[Manifest], namespace: str = "") -> None:
    """Gives a user these rights, in one namespace or everywhere; they hold when this returns."""
    kind = "Role" if namespace else "ClusterRole"
    root = f"{RBAC}/namespaces/{namespace}" if namespace else RBAC
    roles = plane.rest.get(f"{root}/{kind.lower()}s").body["items"]
    name = f"{user.replace('@', '-')}-{len(roles)}"
    role = {"metadata": {"name": name}, "rules": rules}
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    for plural, document in ((f"{kind.lower()}s", role), (f"{kind.lower()}bindings", binding)):
        answer = plane.rest.post(f"{root}/{plural}", document)
        assert answer.accepted, answer.message
    wait_until(
        lambda: all(is_allowed(plane, user, rule, namespace) for rule in rules), f"{user} has the rights"
    )


def grant_spend(plane: ControlPlane, user: str, *owners: str) -> None:
    """Gives a user the verb ``spend`` for these owners, or for all owners if none is named."""
    rule: Manifest = {"apiGroups": [GROUP], "resources": ["budgets"], "verbs": ["spend"]}
    grant(plane, user, [{**rule, "resourceNames": list(owners)} if owners else rule])


def bind_role(plane: ControlPlane, role: str, user: str, namespace: str = "") -> None:
    """Binds a user to a ClusterRole, in one namespace or everywhere; it holds when this returns."""
    kind = "rolebinding" if namespace else "clusterrolebinding"
    scope = ["-n", namespace] if namespace else []
    plane.kubectl(
        "create",
        kind,
        f"{user}-{role}-{namespace or 'all'}",
        f"--clusterrole={role}",
        f"--user={user}",
        *scope,
    )
    rules = plane.rest.get(f"{RBAC}/clusterroles/{role}").body.get("rules") or ()
    for rule in [rule for rule in rules if "resources" in rule][:1]:
        wait_until(lambda: is_allowed(plane, user, rule, namespace), f"{user} has the role {role}")  # noqa: B023


def is_allowed(plane: ControlPlane, user: str, rule: Manifest, namespace: str) -> bool:
    """Whether a user has the first right of a rule, asked of the API server's authorizer."""
    resource, _, subresource = rule["resources"][0].partition("/")
    attributes = {
        "group": rule["apiGroups"][0],
        "resource": resource,
        "subresource": subresource,
        "verb": rule["verbs"][0].replace("*", "create"),
        "name": rule.get("resourceNames", [""])[0],
        "namespace": namespace,
    }
    review = {"spec": {"user": user, "resourceAttributes": attributes}}
    answer = plane.rest.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer.body["status"]["allowed"])
