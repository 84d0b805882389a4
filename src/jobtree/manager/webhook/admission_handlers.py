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
from jobtree.core.reporting import cross_object_rules
from jobtree.kube.http.async_client import AsyncClient
from jobtree.kube.installation import POLICY_NAME, account_of
from jobtree.manager.cluster_view import View
from jobtree.manager.webhook.admission_review import YES, Answered, Asked
from jobtree.manager.webhook.pod_policies import GpuClaimRules, GpuPodRules, PodRules
from jobtree.manager.webhook.webhook_server import Judge
from jobtree.manager.webhook.write_policies import RecordRules, RunRules, spend_by

Kind = TypeVar("Kind", Budget, Run)


def judges(view: View, client: AsyncClient, namespace: str) -> dict[str, Judge]:
    return {
        "/validate": Neighbors(view, namespace).judge,
        "/mutate": mutate,
        "/rules/jobtree-runs": RunRules(namespace, spend_by(client)).judge,
        "/rules/jobtree-records": RecordRules(namespace).judge,
        "/rules/jobtree-gpu-pods": GpuPodRules(namespace).judge,
        "/rules/jobtree-gpu-claims": GpuClaimRules().judge,
        "/rules/jobtree-pods": PodRules(namespace).judge,
    }


async def mutate(asked: Asked) -> Answered:
    spec, before = asked.after.get("spec"), asked.before.get("spec")
    if not isinstance(spec, dict):  # it has not been looked at by its kind's rules yet, and will be
        return YES
    return Answered(patch=tuple(one_spelling(spec, before or {})))


class Neighbors:
    """Judges a Run or a Budget by what else there is."""

    def __init__(self, view: View, namespace: str) -> None:
        self._view = view
        self._namespace = namespace
        self._jobtree = account_of(namespace)

    async def judge(self, asked: Asked) -> Answered:
        if asked.sub_resource or asked.operation == "DELETE" or asked.user_info.username == self._jobtree:
            return YES
        if asked.going or asked.after.get("spec") == asked.before.get("spec"):
            return YES  # labels and finalizers are nobody's business here
        try:
            if asked.plural == "budgets":
                return self._budget(read(asked.after, Budget), read_old(asked.before, Budget))
            return self._run(read(asked.after, Run))
        except InputError as wrong:
            return refuse(wrong.problems)

    def _run(self, run: Run) -> Answered:
        def named(name: str) -> Run | None:
            held = self._view.runs.named(name, run.metadata.namespace)
            return held.value if held else None

        problems = [*policy_problems(run, self._max_grace_ms()), *cross_object_rules.run_problems(run, named)]
        if problems:
            return refuse(problems)
        return warn(cross_object_rules.run_advice(run, self._budgets(), named))

    def _budget(self, budget: Budget, before: Budget | None) -> Answered:
        others = list(self._budgets(but=budget.metadata.name))
        problems = cross_object_rules.budget_problems(budget, others)
        return (
            refuse(problems) if problems else warn(cross_object_rules.budget_advice(budget, before, others))
        )

    def _budgets(self, but: str = "") -> Iterable[BudgetSpec]:
        return (held.value.spec for held in self._view.budgets if held.name != but)

    def _max_grace_ms(self) -> int:
        held = self._view.policy.named(POLICY_NAME, self._namespace)
        return (held.value if held else Policy()).max_grace_ms


def read(document: dict[str, Any], kind: type[Kind]) -> Kind:
    """Raises InputError with all that is wrong with the object by itself."""
    named = {**document, "metadata": {"name": "unnamed", **(document.get("metadata") or {})}}
    parsed = parse_object(named, "admission")
    assert isinstance(parsed, kind)
    return parsed


def read_old(document: dict[str, Any], kind: type[Kind]) -> Kind | None:
    """The object as it was; None where there was none, or what there was could not be read."""
    try:
        return read(document, kind) if document else None
    except InputError:
        return None


def refuse(problems: Iterable[Problem | str]) -> Answered:
    return Answered(refusal="; ".join(str(problem) for problem in problems))


def warn(remarks: Iterable[Problem]) -> Answered:
    return Answered(warnings=tuple(f"{one.field}: {one.value}: {one.rule}" for one in remarks))


OLD, NEW = "sparesPerGroup", "spares"

Spec = dict[str, Any]


def one_spelling(spec: Spec, before: Spec, path: str = "/spec") -> Iterator[dict[str, Any]]:
    """The JSON patch. Two different wishes at once are left for the kind's own rules to refuse."""
    if OLD in spec:
        # Applied again, the author's manifest meets the spelling that was written for it last time.
        unsaid = NEW not in spec or (NEW in before and OLD not in before and spec[NEW] == before[NEW])
        if unsaid or spec[NEW] == spec[OLD]:
            yield {"op": "add", "path": f"{path}/{NEW}", "value": spec[OLD]}
            yield {"op": "remove", "path": f"{path}/{OLD}"}
    known = {str(stage.get("name")): stage for _, stage in _stages(before)}
    for position, stage in _stages(spec):
        yield from one_spelling(stage, known.get(str(stage.get("name")), {}), f"{path}/stages/{position}")


def _stages(spec: Spec) -> list[tuple[int, Spec]]:
    """With their positions; the kind's own rules, which come later, refuse what is none."""
    stages = spec.get("stages")
    listed = stages if isinstance(stages, list) else []
    return [(position, stage) for position, stage in enumerate(listed) if isinstance(stage, dict)]
