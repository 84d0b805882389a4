"""What if: the same trace with another budget or more nodes.

``budget NAME concurrency=256`` (or ``budget NAME/ENVELOPE …``) sets what a budget gives at once;
``nodes +16`` adds nodes like the last one, ``nodes -4`` takes the last ones away.
"""

import re

import msgspec

from jobtree.api.budget import Budget
from jobtree.api.problems import InputError, Problem
from jobtree.replay.scene import Scene

FORM = "budget NAME concurrency=GPUs, budget NAME/ENVELOPE concurrency=GPUs, nodes +N or nodes -N"
BUDGET = re.compile(r"budget (?P<name>[^\s/]+)(?:/(?P<envelope>\S+))? concurrency=(?P<gpus>[0-9]+)")
NODES = re.compile(r"nodes (?P<change>[+-][0-9]+)")


def changed(scene: Scene, text: str) -> Scene:
    """The scene with that one thing changed. Raises InputError."""
    words = " ".join(text.split())
    if match := BUDGET.fullmatch(words):
        return with_budget(scene, match["name"], match["envelope"], int(match["gpus"]))
    if match := NODES.fullmatch(words):
        return with_nodes(scene, int(match["change"]))
    raise InputError("what-if", [Problem("--what-if", text, f"must be {FORM}")])


def with_budget(scene: Scene, name: str, envelope: str | None, gpus: int) -> Scene:
    known = {budget.metadata.name: budget for budget in scene.budgets}
    budget = known.get(name)
    if budget is None:
        rule = f"there is no such budget; there are {', '.join(sorted(known))}"
        raise InputError("what-if", [Problem("budget", name, rule)])
    if not gpus:
        raise InputError("what-if", [Problem("concurrency", gpus, "must be more than 0")])
    names = [one.name for one in budget.spec.envelopes]
    if envelope is None and len(names) == 1:
        envelope = names[0]
    if envelope not in names:
        rule = f"budget {name} has the envelopes {', '.join(names) or 'none'}: name one, as in {name}/main"
        raise InputError("what-if", [Problem("envelope", envelope or "", rule)])
    after = widened(budget, envelope, gpus)
    budgets = tuple(after if one is budget else one for one in scene.budgets)
    return msgspec.structs.replace(scene, budgets=budgets)


def widened(budget: Budget, envelope: str, gpus: int) -> Budget:
    envelopes = tuple(
        msgspec.structs.replace(one, concurrency=gpus) if one.name == envelope else one
        for one in budget.spec.envelopes
    )
    return msgspec.structs.replace(budget, spec=msgspec.structs.replace(budget.spec, envelopes=envelopes))


def with_nodes(scene: Scene, change: int) -> Scene:
    count = len(scene.nodes)
    if count + change < 1:
        raise InputError("what-if", [Problem("nodes", change, f"the fleet has {count}: one must be left")])
    if change <= 0:
        return msgspec.structs.replace(scene, nodes=scene.nodes[: count + change])
    last = scene.nodes[-1]
    more = tuple(
        msgspec.structs.replace(last, name=f"what-if-{number:05d}", uid=f"what-if-{number:05d}")
        for number in range(change)
    )
    return msgspec.structs.replace(scene, nodes=(*scene.nodes, *more))
