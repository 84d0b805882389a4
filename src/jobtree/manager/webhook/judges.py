"""Who answers what: one judge for each path of the webhook.

``/validate`` judges Runs and Budgets among all others (SPEC, section 13): what is wrong is refused, what may
not have been meant is told. ``/mutate`` writes a Run in one spelling. ``/rules/NAME`` is the admission policy
of that name, for clusters that have none.
"""

from collections.abc import Iterable
from typing import Any, TypeVar

from jobtree.api.budget import Budget, BudgetSpec
from jobtree.api.parse import parse_object
from jobtree.api.policy import Policy
from jobtree.api.problems import InputError, Problem
from jobtree.api.run import Run
from jobtree.api.validate import policy_problems
from jobtree.core import advice
from jobtree.kube.async_client import AsyncClient
from jobtree.kube.installed import POLICY_NAME, account_of
from jobtree.manager.view import View
from jobtree.manager.webhook.defaults import one_spelling
from jobtree.manager.webhook.pod_rules import GpuClaimRules, GpuPodRules, PodRules
from jobtree.manager.webhook.reviews import YES, Answered, Asked
from jobtree.manager.webhook.rules import RecordRules, RunRules, spend_by
from jobtree.manager.webhook.server import Judge

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

        problems = [*policy_problems(run, self._max_grace_ms()), *advice.run_problems(run, named)]
        if problems:
            return refuse(problems)
        return warn(advice.run_advice(run, self._budgets(), named))

    def _budget(self, budget: Budget, before: Budget | None) -> Answered:
        others = list(self._budgets(but=budget.metadata.name))
        problems = advice.budget_problems(budget, others)
        return refuse(problems) if problems else warn(advice.budget_advice(budget, before, others))

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
