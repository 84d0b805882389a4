"""The admission policies jobtree-runs and jobtree-records, for clusters before 1.30, which have no policies.

They apply the rules of ``deploy/kustomize/base/admission-*.yaml``, with the same messages, and the same
attacks are tried on both. A SubjectAccessReview checks the verb ``spend``. Exempt users are decided here too,
since clusters before 1.28 ignore the matchConditions of the configuration.
"""

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from jobtree.api.schema.object_meta import GROUP
from jobtree.kube.http import api_requests
from jobtree.kube.http.api_resources import ACCESS_REVIEWS, BUDGETS
from jobtree.kube.http.async_client import AsyncClient
from jobtree.kube.installation import account_of
from jobtree.manager.webhook.admission_review import (
    ALLOWED,
    AdmissionRequest,
    AdmissionResponse,
    UserInfo,
    forbid,
)

BREAK_GLASS = "jobtree:break-glass"
CONTROLLERS = frozenset(
    {
        "system:kube-controller-manager",
        "system:serviceaccount:kube-system:generic-garbage-collector",
        "system:serviceaccount:kube-system:namespace-controller",
    }
)
MAX_METADATA_ENTRIES = 64
MAX_NAME_LENGTH = 240
LIMITED_FIELDS = ("labels", "annotations", "finalizers", "ownerReferences")

MaySpend = Callable[[UserInfo, str], Coroutine[Any, Any, bool]]
ObjectBody = dict[str, Any]


class ExemptUsers(NamedTuple):
    """The users to whom a rule does not apply."""

    jobtree: str
    controllers: bool = True
    break_glass: bool = True

    def includes(self, user: UserInfo) -> bool:
        return (
            (bool(self.jobtree) and user.username == self.jobtree)
            or (self.controllers and user.username in CONTROLLERS)
            or (self.break_glass and BREAK_GLASS in user.groups)
        )


def spend_by(client: AsyncClient) -> MaySpend:
    """Returns a function that asks the API server whether a user may charge an owner."""

    async def may_spend(user: UserInfo, owner: str) -> bool:
        attributes = {"group": GROUP, "resource": BUDGETS.plural, "verb": "spend", "name": owner}
        review = {
            "apiVersion": ACCESS_REVIEWS.api_version,
            "kind": ACCESS_REVIEWS.kind,
            "metadata": {},
            "spec": {
                "user": user.username,
                "groups": list(user.groups),
                "uid": user.uid,
                "extra": user.extra,
                "resourceAttributes": attributes,
            },
        }
        answer = await client.ask(api_requests.create(ACCESS_REVIEWS, review))
        return bool(answer["status"]["allowed"])

    return may_spend


# Records


class RecordPolicy:
    """Allows only Jobtree to write Reservations, Leases and the status of all four kinds."""

    def __init__(self, namespace: str) -> None:
        self._exempt = ExemptUsers(account_of(namespace))

    async def review(self, request: AdmissionRequest) -> AdmissionResponse:
        if self._exempt.includes(request.user_info):
            return ALLOWED
        path = "/".join(filter(None, (request.plural, request.sub_resource)))
        return forbid(
            f"{path} {request.name}: only Jobtree writes these, "
            f"and {request.user_info.username} is not Jobtree: "
            "change or cancel the Run, or edit the Budget, and Jobtree writes what follows; "
            f"in an emergency an administrator acts in the group {BREAK_GLASS}"
        )


# Runs


class RunPolicy:
    """Limits who may write which Runs, beyond RBAC."""

    def __init__(self, namespace: str, may_spend: MaySpend) -> None:
        self._namespace = namespace
        self._exempt = ExemptUsers(account_of(namespace), break_glass=False)
        self._may_spend = may_spend

    async def review(self, request: AdmissionRequest) -> AdmissionResponse:
        if request.sub_resource or self._exempt.includes(request.user_info):
            return ALLOWED
        if request.operation == "DELETE":
            return self._refuse_orphaning(request.options or {})
        owner = request.after["spec"]["owner"]
        charges = request.after["spec"] != request.before.get("spec")
        if charges and not await self._may_spend(request.user_info, owner):
            return forbid(
                f"spec.owner: {owner}: you may not charge {owner}: "
                f"ask for the verb spend on budgets named {owner}"
            )
        return self._check_metadata(request)

    def _check_metadata(self, request: AdmissionRequest) -> AdmissionResponse:
        if request.namespace == self._namespace:
            return forbid(
                f"metadata.namespace: {self._namespace}: what runs here could act as Jobtree: "
                "create the Run in a namespace of your team"
            )
        after, before = request.after["metadata"], request.before.get("metadata") or {}
        parents, parents_before = (
            [run["uid"] for run in owner_runs(metadata)] for metadata in (after, before)
        )
        if parents != parents_before:
            return forbid(
                f"metadata.ownerReferences: Run {[*parents, *parents_before][0]}: only Jobtree makes a "
                "Run the stage of another, or ends that: leave these references as they are"
            )
        if "orphan" in (after.get("finalizers") or ()):
            return self._refuse_orphaning({"propagationPolicy": "Orphan"})
        return check_metadata_size(request)

    def _refuse_orphaning(self, options: dict[str, Any]) -> AdmissionResponse:
        if options.get("propagationPolicy") != "Orphan" and not options.get("orphanDependents"):
            return ALLOWED
        return forbid(
            "propagationPolicy: Orphan: the pods of a Run go with it, or they would hold GPUs that nobody "
            "pays for: delete the Run without --cascade=orphan and without the finalizer orphan"
        )


def check_metadata_size(request: AdmissionRequest) -> AdmissionResponse:
    """Limits the metadata, which is written with every status: one Run cannot slow down the manager."""
    metadata = request.after["metadata"]
    for field in LIMITED_FIELDS:
        count = len(metadata.get(field) or ())
        if count > MAX_METADATA_ENTRIES:
            return AdmissionResponse(
                refusal=f"metadata.{field}: {count} are too many: "
                f"a Run may have at most {MAX_METADATA_ENTRIES} of them: keep what is long in a ConfigMap"
            )
    name = metadata["name"]
    if request.operation == "CREATE" and len(name) > MAX_NAME_LENGTH:
        return AdmissionResponse(
            refusal=f"metadata.name: {name}: must be at most {MAX_NAME_LENGTH} characters, "
            "for its Reservations are named after it: choose a shorter name"
        )
    return ALLOWED


def owner_runs(metadata: ObjectBody) -> list[ObjectBody]:
    """Returns the owner references to Runs."""
    return [
        reference for reference in metadata.get("ownerReferences") or () if reference.get("kind") == "Run"
    ]
