"""Who answers what: one judge for each path of the webhook.

``/validate`` judges Runs and Budgets among all others (SPEC, section 13): what is wrong is refused, what may
not have been meant is told. ``/mutate`` writes a Run in one spelling. ``/rules/NAME`` is the admission policy
of that name, for clusters that have none.
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


async def mutate(asked: AdmissionRequest) -> AdmissionResponse:
    spec, before = asked.after.get("spec"), asked.before.get("spec")
    if not isinstance(spec, dict):  # it has not been looked at by its kind's rules yet, and will be
        return ALLOWED
    return AdmissionResponse(patch=tuple(spares_patch(spec, before or {})))


class CrossObjectChecks:
    """Judges a Run or a Budget by what else there is."""

    def __init__(self, view: ClusterView, namespace: str) -> None:
        self._view = view
        self._namespace = namespace
        self._jobtree = account_of(namespace)

    async def review(self, asked: AdmissionRequest) -> AdmissionResponse:
        if asked.sub_resource or asked.operation == "DELETE" or asked.user_info.username == self._jobtree:
            return ALLOWED
        if asked.going or asked.after.get("spec") == asked.before.get("spec"):
            return ALLOWED  # labels and finalizers are nobody's business here
        try:
            if asked.plural == "budgets":
                return self._budget(decode_object(asked.after, Budget), read_old(asked.before, Budget))
            return self._run(decode_object(asked.after, Run))
        except InputError as wrong:
            return deny(wrong.problems)

    def _run(self, run: Run) -> AdmissionResponse:
        def named(name: str) -> Run | None:
            held = self._view.runs.named(name, run.metadata.namespace)
            return held.value if held else None

        problems = [
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
    """Raises InputError with all that is wrong with the object by itself."""
    named = {**document, "metadata": {"name": "unnamed", **(document.get("metadata") or {})}}
    parsed = parse_object(named, "admission")
    assert isinstance(parsed, kind)
    return parsed


def read_old(document: dict[str, Any], kind: type[ObjectT]) -> ObjectT | None:
    """The object as it was; None where there was none, or what there was could not be read."""
    try:
        return decode_object(document, kind) if document else None
    except InputError:
        return None


def deny(problems: Iterable[Problem | str]) -> AdmissionResponse:
    return AdmissionResponse(refusal="; ".join(str(problem) for problem in problems))


def allow_with_warnings(remarks: Iterable[Problem]) -> AdmissionResponse:
    return AdmissionResponse(warnings=tuple(f"{one.field}: {one.value}: {one.rule}" for one in remarks))


OLD, NEW = "sparesPerGroup", "spares"

Spec = dict[str, Any]


def spares_patch(spec: Spec, before: Spec, path: str = "/spec") -> Iterator[dict[str, Any]]:
    """The JSON patch. Two different wishes at once are left for the kind's own rules to refuse."""
    if OLD in spec:
        # Applied again, the author's manifest meets the spelling that was written for it last time.
        unsaid = NEW not in spec or (NEW in before and OLD not in before and spec[NEW] == before[NEW])
        if unsaid or spec[NEW] == spec[OLD]:
            yield {"op": "add", "path": f"{path}/{NEW}", "value": spec[OLD]}
            yield {"op": "remove", "path": f"{path}/{OLD}"}
    known = {str(stage.get("name")): stage for _, stage in _stages(before)}
    for position, stage in _stages(spec):
        yield from spares_patch(stage, known.get(str(stage.get("name")), {}), f"{path}/stages/{position}")


def _stages(spec: Spec) -> list[tuple[int, Spec]]:
    """With their positions; the kind's own rules, which come later, refuse what is none."""
    stages = spec.get("stages")
    listed = stages if isinstance(stages, list) else []
    return [(position, stage) for position, stage in enumerate(listed) if isinstance(stage, dict)]
