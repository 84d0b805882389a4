"""Changes a budget or the nodes of a replay setup, to compare both replays.

``budget NAME concurrency=256`` (or ``budget NAME/ENVELOPE …``) sets the concurrency of an envelope; ``nodes
+16`` adds nodes like the last one, ``nodes -4`` removes the last ones. Jobs that need more GPUs than the
fleet then has are skipped, like rows of the trace that never fitted.
"""

import re

import msgspec

from jobtree.api.kinds.budget import Budget, Envelope
from jobtree.api.kubernetes.node import Node
from jobtree.api.schema.problems import InputError, Problem
from jobtree.api.schema.scalars import MAX_GPUS
from jobtree.api.validation.budget_rules import budget_problems
from jobtree.simulation.inputs.job_trace import fitting
from jobtree.simulation.inputs.replay_cluster import MOST_NODES
from jobtree.simulation.inputs.replay_setup import ReplaySetup

FORM = "budget NAME concurrency=GPUs, budget NAME/ENVELOPE concurrency=GPUs, nodes +N or nodes -N"
BUDGET = re.compile(r"budget (?P<name>[^\s/]+)(?:/(?P<envelope>\S+))? concurrency=(?P<gpus>[0-9]{1,18})")
NODES = re.compile(r"nodes (?P<change>[+-][0-9]{1,18})")


def changed(setup: ReplaySetup, text: str) -> ReplaySetup:
    """Returns the setup with this change. Raises InputError."""
    words = " ".join(text.split())
    if match := BUDGET.fullmatch(words):
        return with_budget(setup, match["name"], match["envelope"], int(match["gpus"]))
    if match := NODES.fullmatch(words):
        return with_nodes(setup, int(match["change"]))
    raise InputError("options", [Problem("--what-if", text, f"must be {FORM}")])


def with_budget(setup: ReplaySetup, name: str, envelope: str | None, gpus: int) -> ReplaySetup:
    budgets_by_name = {budget.metadata.name: budget for budget in setup.budgets}
    budget = budgets_by_name.get(name)
    if budget is None:
        rule = f"there is no such budget; there are {', '.join(sorted(budgets_by_name))}"
        raise InputError("what-if", [Problem("budget", name, rule)])
    if not 1 <= gpus <= MAX_GPUS:
        raise InputError("what-if", [Problem("concurrency", gpus, f"must be between 1 and {MAX_GPUS}")])
    if not budget.spec.envelopes:
        empty = Envelope(name="main", flavor=setup.flavor, concurrency=gpus)
        spec = msgspec.structs.replace(budget.spec, envelopes=(empty,))
        budget = msgspec.structs.replace(budget, spec=spec)
    names = [own.name for own in budget.spec.envelopes]
    if envelope is None and len(names) == 1:
        envelope = names[0]
    if envelope not in names:
        rule = f"budget {name} has the envelopes {', '.join(names) or 'none'}: name one, as in {name}/main"
        raise InputError("what-if", [Problem("envelope", envelope or "", rule)])
    changed_budget = widened(budget, envelope, gpus)
    if problems := list(budget_problems(changed_budget)):
        raise InputError("what-if", problems)
    budgets = tuple(changed_budget if other.metadata.name == name else other for other in setup.budgets)
    return msgspec.structs.replace(setup, budgets=budgets)


def widened(budget: Budget, envelope: str, gpus: int) -> Budget:
    envelopes = tuple(
        msgspec.structs.replace(own, concurrency=gpus) if own.name == envelope else own
        for own in budget.spec.envelopes
    )
    return msgspec.structs.replace(budget, spec=msgspec.structs.replace(budget.spec, envelopes=envelopes))


def with_nodes(setup: ReplaySetup, change: int) -> ReplaySetup:
    count = len(setup.nodes)
    if not 1 <= count + change <= MOST_NODES:
        rule = f"the fleet has {count}: between 1 and {MOST_NODES} must be left"
        raise InputError("what-if", [Problem("nodes", change, rule)])
    more = tuple(added(setup.nodes[-1], number) for number in range(count, count + change))
    nodes = (*setup.nodes[: count + change], *more)
    gpus = sum(node.gpus for node in nodes)
    return msgspec.structs.replace(setup, nodes=nodes, trace=fitting(setup.trace, gpus))


def added(like: Node, number: int) -> Node:
    name = f"what-if-{number:05d}"
    return msgspec.structs.replace(like, name=name, uid=name)
