"""The handler of each path of the webhook.

``/validate`` checks a Run or a Budget against the other objects (specification, section 13): it refuses
errors, and warns of settings that may be mistakes. ``/mutate`` replaces the old spelling of a field in a Run.
``/rules/NAME`` applies the admission policy of that name, for clusters without admission policies.
"""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from jobtree.api.kinds.budget import Budget, BudgetSpec
from jobtree.api.kinds.policy import Policy
from jobtree.api.kinds.run import Run
from jobtree.api.schema.problems import InputError, Problem
from jobtree.api.validation.object_parser import parse_object
from jobtree.api.validation.object_rules import policy_problems
from jobtree.core import budget_warnings, family_cycle_problems, run_reference_problems, run_warnings
from jobtree.kube.http.async_client import AsyncClient
from jobtree.kube.installation import POLICY_NAME, account_of
from jobtree.manager.cluster_view import ClusterView
from jobtree.manager.webhook.admission_review import ALLOWED, AdmissionRequest, AdmissionResponse
from jobtree.manager.webhook.object_size import size_problems
from jobtree.manager.webhook.pod_policies import GpuClaimPolicy, GpuPodPolicy, PodPolicy
from jobtree.manager.webhook.webhook_server import Handler
from jobtree.manager.webhook.write_policies import RecordPolicy, RunPolicy, spend_by

ObjectT = TypeVar("ObjectT", Budget, Run)


def handlers(view: ClusterView, client: AsyncClient, namespace: str) -> dict[str, Handler]:
    return {
        "/validate": CrossObjectChecks(view, namespace).review,
        "/mutate": mutate,
        "/rules/jobtree-runs": RunPolicy(namespace, spend_by(client)).review,
        "/rules/jobtree-records": RecordPolicy(namespace).review,
        "/rules/jobtree-gpu-pods": GpuPodPolicy(namespace).review,
        "/rules/jobtree-gpu-claims": GpuClaimPolicy().review,
        "/rules/jobtree-pods": PodPolicy(namespace).review,
    }


async def mutate(request: AdmissionRequest) -> AdmissionResponse:
    spec, before = request.after.get("spec"), request.before.get("spec")
    if not isinstance(spec, dict):  # the schema, which is checked later, refuses it
        return ALLOWED
    return AdmissionResponse(patch=tuple(spares_patch(spec, before or {})))


class CrossObjectChecks:
    """Checks a Run or a Budget against the other objects of the cluster."""

    def __init__(self, view: ClusterView, namespace: str) -> None:
        self._view = view
        self._namespace = namespace
        self._jobtree = account_of(namespace)

    async def review(self, request: AdmissionRequest) -> AdmissionResponse:
        if (
            request.sub_resource
            or request.operation == "DELETE"
            or request.user_info.username == self._jobtree
        ):
            return ALLOWED
        if request.is_being_deleted or request.after.get("spec") == request.before.get("spec"):
            return ALLOWED  # only the spec is checked
        try:
            if request.plural == "budgets":
                return self._budget(decode_object(request.after, Budget), read_old(request.before, Budget))
            return self._run(request.after, decode_object(request.after, Run))
        except InputError as error:
            return deny(error.problems)

    def _run(self, document: dict[str, Any], run: Run) -> AdmissionResponse:
        def named(name: str) -> Run | None:
            held = self._view.runs.named(name, run.metadata.namespace)
            return held.value if held else None

        problems: list[Problem | str] = [
            *size_problems(document, run),
            *policy_problems(run, self._max_grace_ms()),
            *run_reference_problems(run, named),
        ]
        if problems:
            return deny(problems)
        return allow_with_warnings(run_warnings(run, self._budgets(), named))

    def _budget(self, budget: Budget, before: Budget | None) -> AdmissionResponse:
        others = list(self._budgets(but=budget.metadata.name))
        problems = family_cycle_problems(budget, others)
        return deny(problems) if problems else allow_with_warnings(budget_warnings(budget, before, others))

    def _budgets(self, but: str = "") -> Iterable[BudgetSpec]:
        return (held.value.spec for held in self._view.budgets if held.name != but)

    def _max_grace_ms(self) -> int:
        held = self._view.policy.named(POLICY_NAME, self._namespace)
        return (held.value if held else Policy()).max_grace_ms


def decode_object(document: dict[str, Any], kind: type[ObjectT]) -> ObjectT:
    """Decodes an object. Raises InputError with everything that is wrong with the object by itself."""
    named = {**document, "metadata": {"name": "unnamed", **(document.get("metadata") or {})}}
    parsed = parse_object(named, "admission")
    assert isinstance(parsed, kind)
    return parsed


def read_old(document: dict[str, Any], kind: type[ObjectT]) -> ObjectT | None:
    """Returns the object before the change; None if there was none or it cannot be decoded."""
    try:
        return decode_object(document, kind) if document else None
    except InputError:
        return None


def deny(problems: Iterable[Problem | str]) -> AdmissionResponse:
    return AdmissionResponse(refusal="; ".join(str(problem) for problem in problems))


def allow_with_warnings(remarks: Iterable[Problem]) -> AdmissionResponse:
    return AdmissionResponse(
        warnings=tuple(f"{remark.field}: {remark.value}: {remark.rule}" for remark in remarks)
    )


OLD, NEW = "sparesPerGroup", "spares"

Spec = dict[str, Any]


def spares_patch(spec: Spec, before: Spec, path: str = "/spec") -> Iterator[dict[str, Any]]:
    """Yields a JSON patch from the old spelling to the new one; the schema refuses two different values."""
    if OLD in spec:
        # When a manifest is applied again, the object still has the new spelling from the last time.
        new_is_unset = NEW not in spec or (NEW in before and OLD not in before and spec[NEW] == before[NEW])
        if new_is_unset or spec[NEW] == spec[OLD]:
            yield {"op": "add", "path": f"{path}/{NEW}", "value": spec[OLD]}
            yield {"op": "remove", "path": f"{path}/{OLD}"}
    stages_before = {str(stage.get("name")): stage for _, stage in _stages(before)}
    for position, stage in _stages(spec):
        stage_before = stages_before.get(str(stage.get("name")), {})
        yield from spares_patch(stage, stage_before, f"{path}/stages/{position}")


def _stages(spec: Spec) -> list[tuple[int, Spec]]:
    """Returns the stages with their positions; the schema refuses anything else later."""
    stages = spec.get("stages")
    listed = stages if isinstance(stages, list) else []
    return [(position, stage) for position, stage in enumerate(listed) if isinstance(stage, dict)]
