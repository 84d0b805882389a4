"""The admission policies jobtree-runs and jobtree-records, for clusters before 1.30, which have no policies.

They say what ``deploy/kustomize/base/admission-*.yaml`` says, in the same words: the same attacks are tried
against both. ``spend`` is asked for by a SubjectAccessReview. Who passes is decided here as well as in the
configuration's matchConditions, which clusters before 1.28 do not know.
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
MOST_OF_METADATA = 64
MOST_NAME = 240
BOUNDED = ("labels", "annotations", "finalizers", "ownerReferences")

MaySpend = Callable[[UserInfo, str], Coroutine[Any, Any, bool]]
ObjectBody = dict[str, Any]


class ExemptUsers(NamedTuple):
    """Who is let through by a rule without a look."""

    jobtree: str
    controllers: bool = True
    break_glass: bool = True

    def lets(self, user: UserInfo) -> bool:
        return (
            (bool(self.jobtree) and user.username == self.jobtree)
            or (self.controllers and user.username in CONTROLLERS)
            or (self.break_glass and BREAK_GLASS in user.groups)
        )


def spend_by(client: AsyncClient) -> MaySpend:
    """Asks the API server whether somebody may charge an owner."""

    async def may_spend(user: UserInfo, owner: str) -> bool:
        asked = {"group": GROUP, "resource": BUDGETS.plural, "verb": "spend", "name": owner}
        review = {
            "apiVersion": ACCESS_REVIEWS.api_version,
            "kind": ACCESS_REVIEWS.kind,
            "metadata": {},
            "spec": {
                "user": user.username,
                "groups": list(user.groups),
                "uid": user.uid,
                "extra": user.extra,
                "resourceAttributes": asked,
            },
        }
        answer = await client.ask(api_requests.create(ACCESS_REVIEWS, review))
        return bool(answer["status"]["allowed"])

    return may_spend


# Records


class RecordPolicy:
    """Only Jobtree writes Reservations, Leases and the status of all four kinds."""

    def __init__(self, namespace: str) -> None:
        self._passing = ExemptUsers(account_of(namespace))

    async def review(self, asked: AdmissionRequest) -> AdmissionResponse:
        if self._passing.lets(asked.user_info):
            return ALLOWED
        what = "/".join(filter(None, (asked.plural, asked.sub_resource)))
        return forbid(
            f"{what} {asked.name}: only Jobtree writes these, and {asked.user_info.username} is not Jobtree: "
            "change or cancel the Run, or edit the Budget, and Jobtree writes what follows; "
            f"in an emergency an administrator acts in the group {BREAK_GLASS}"
        )


# Runs


class RunPolicy:
    """Who may write Runs, beyond what RBAC says."""

    def __init__(self, namespace: str, may_spend: MaySpend) -> None:
        self._namespace = namespace
        self._passing = ExemptUsers(account_of(namespace), break_glass=False)
        self._may_spend = may_spend

    async def review(self, asked: AdmissionRequest) -> AdmissionResponse:
        if asked.sub_resource or self._passing.lets(asked.user_info):
            return ALLOWED
        if asked.operation == "DELETE":
            return self._refuse_orphaning(asked.options or {})
        owner = asked.after["spec"]["owner"]
        charges = asked.after["spec"] != asked.before.get("spec")
        if charges and not await self._may_spend(asked.user_info, owner):
            return forbid(
                f"spec.owner: {owner}: you may not charge {owner}: "
                f"ask for the verb spend on budgets named {owner}"
            )
        return self._metadata(asked)

    def _metadata(self, asked: AdmissionRequest) -> AdmissionResponse:
        if asked.namespace == self._namespace:
            return forbid(
                f"metadata.namespace: {self._namespace}: what runs here could act as Jobtree: "
                "create the Run in a namespace of your team"
            )
        after, before = asked.after["metadata"], asked.before.get("metadata") or {}
        parents, parents_before = ([one["uid"] for one in runs_that_own(each)] for each in (after, before))
        if parents != parents_before:
            return forbid(
                f"metadata.ownerReferences: Run {[*parents, *parents_before][0]}: only Jobtree makes a "
                "Run the stage of another, or ends that: leave these references as they are"
            )
        if "orphan" in (after.get("finalizers") or ()):
            return self._refuse_orphaning({"propagationPolicy": "Orphan"})
        return bounded(asked)

    def _refuse_orphaning(self, options: dict[str, Any]) -> AdmissionResponse:
        if options.get("propagationPolicy") != "Orphan" and not options.get("orphanDependents"):
            return ALLOWED
        return forbid(
            "propagationPolicy: Orphan: the pods of a Run go with it, or they would hold GPUs that nobody "
            "pays for: delete the Run without --cascade=orphan and without the finalizer orphan"
        )


def bounded(asked: AdmissionRequest) -> AdmissionResponse:
    """What is written with every status: without a bound, one Run could keep the manager from all others."""
    metadata = asked.after["metadata"]
    for field in BOUNDED:
        count = len(metadata.get(field) or ())
        if count > MOST_OF_METADATA:
            return AdmissionResponse(
                refusal=f"metadata.{field}: {count} are too many: a Run may have at most {MOST_OF_METADATA} "
                "of them: keep what is long in a ConfigMap"
            )
    name = metadata["name"]
    if asked.operation == "CREATE" and len(name) > MOST_NAME:
        return AdmissionResponse(
            refusal=f"metadata.name: {name}: must be at most {MOST_NAME} characters, for its Reservations "
            "are named after it: choose a shorter name"
        )
    return ALLOWED


def runs_that_own(metadata: ObjectBody) -> list[ObjectBody]:
    return [one for one in metadata.get("ownerReferences") or () if one.get("kind") == "Run"]
