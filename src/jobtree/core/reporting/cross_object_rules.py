"""Checks an object against the others: what is refused, and what is only warned about.

Refused are a Budget that closes a cycle of parents (C1) and a Run that waits for itself (J1). Warnings are
given where other objects can still make the setting right: an owner without a Budget, sponsors that do not
lend, upstream Runs that do not exist, parents without a Budget, and limits below what is in use (C10).
"""

from collections.abc import Callable, Iterable, Iterator

from jobtree.api.kinds.budget import Budget, BudgetSpec, Envelope, Usage
from jobtree.api.kinds.run import Gang, Run, Stage
from jobtree.api.schema.near_names import suggestion
from jobtree.api.schema.problems import Problem
from jobtree.api.schema.quantities import format_milli, parse_milli
from jobtree.core.accounts.envelope_accounts import lending_entry_matches
from jobtree.core.accounts.family import Family, prefixes

Lookup = Callable[[str], Run | None]
"""Returns the Run of that name in the namespace."""

CUT = "other envelopes pay for the excess, newest first, or it is demoted"


# Runs


def run_reference_problems(run_object: Run, named: Lookup) -> list[Problem]:
    follow = run_object.spec.follow
    for position, name in enumerate(follow.after if follow else ()):
        path = _path_back(name, run_object, named)
        if path:
            shown = " after ".join([run_object.metadata.name, *path])
            rule = f"{shown} is a cycle, in which no Run could ever start: remove one of these names"
            return [Problem(f"spec.follow.after[{position}]", name, rule)]
    return []


def _path_back(start: str, run_object: Run, named: Lookup) -> list[str]:
    """Returns the path from an upstream Run back to the Run or one of its stages; empty if there is none."""
    goals = {run_object.metadata.name, *_stage_names(run_object)}
    came_from: dict[str, str] = {start: ""}
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name in goals:
            path = [name]
            while came_from[path[-1]]:
                path.append(came_from[path[-1]])
            return path[::-1]
        for upstream in _upstreams(named(name), named):
            if upstream not in came_from:
                came_from[upstream] = name
                waiting.append(upstream)
    return []


def _upstreams(run_object: Run | None, named: Lookup) -> Iterator[str]:
    """Yields the names of Runs that a Run waits for; a stage also waits for those of its tree."""
    if run_object is None:
        return
    if run_object.spec.follow:
        yield from run_object.spec.follow.after
    for reference in run_object.metadata.owner_references:
        if reference.kind == Run.KIND and reference.controller:
            yield from _upstreams(named(reference.name), named)


def _stage_names(run_object: Run) -> Iterator[str]:
    for stage in run_object.spec.stages:
        name = f"{run_object.metadata.name}-{stage.name}"
        yield name
        yield from (f"{name}-{leaf.name}" for leaf in stage.stages)


def run_warnings(run_object: Run, budgets: Iterable[BudgetSpec], named: Lookup) -> list[Problem]:
    specs = list(budgets)
    return [
        *_owner_advice(run_object, specs),
        *_sponsor_advice(run_object, specs),
        *_upstream_advice(run_object, named),
    ]


def _owner_advice(run_object: Run, budgets: list[BudgetSpec]) -> Iterator[Problem]:
    owner, owners = run_object.spec.owner, {spec.owner for spec in budgets}
    if owner in owners:
        return
    payer = next((prefix for prefix in prefixes(owner) if prefix in owners), None)
    rule = (
        f"has no Budget, so the Budget of {payer} pays"
        if payer
        else "has no Budget, nor has any owner above it: create a Budget, or no envelope can pay"
    )
    near = suggestion(owner, owners - {payer})
    yield Problem("spec.owner", owner, f"{rule}; {near}" if near else rule)


def _sponsor_advice(run_object: Run, budgets: list[BudgetSpec]) -> Iterator[Problem]:
    flavors = sorted(set(_flavors(run_object.spec, run_object.spec.stages)))
    for position, sponsor in enumerate(run_object.spec.funding.sponsors):
        field = f"spec.funding.sponsors[{position}]"
        if not run_object.spec.funding.allow_borrow:
            yield Problem(field, sponsor, "cannot pay: set funding.allowBorrow: true, or remove this sponsor")
            continue
        envelopes = [envelope for spec in budgets if spec.owner == sponsor for envelope in spec.envelopes]
        for flavor in flavors:
            if not any(_lends(envelope, flavor, run_object.spec.owner) for envelope in envelopes):
                rule = f"cannot pay: it has no envelope of {flavor} that lends to {run_object.spec.owner}"
                yield Problem(field, sponsor, rule)


def _lends(envelope: Envelope, flavor: str, owner: str) -> bool:
    lending = envelope.lending
    return (
        envelope.flavor == flavor
        and lending is not None
        and lending.allow
        and any(lending_entry_matches(entry, owner) for entry in lending.to)
    )


def _flavors(gang: Gang, stages: tuple[Gang, ...]) -> Iterator[str]:
    if gang.resources is not None and gang.resources.total_gpus and gang.resources.gpu_type:
        yield gang.resources.gpu_type
    for stage in stages:
        yield from _flavors(stage, stage.stages if isinstance(stage, Stage) else ())


def _upstream_advice(run_object: Run, named: Lookup) -> Iterator[Problem]:
    follow = run_object.spec.follow
    for position, name in enumerate(follow.after if follow else ()):
        upstream, field = named(name), f"spec.follow.after[{position}]"
        if upstream is None:
            where = run_object.metadata.namespace
            yield Problem(field, name, f"does not exist in {where}: this Run waits until it does")
        elif upstream.status.phase == "Failed":
            yield Problem(
                field, name, "has failed: this Run starts only after it was created again and completed"
            )


# Budgets


def family_cycle_problems(budget: Budget, others: Iterable[BudgetSpec]) -> list[Problem]:
    """Refuses a Budget that closes a cycle of parents; ``others`` are all other Budgets."""
    owner = budget.spec.owner
    cycle = Family([budget.spec, *others]).cycle_through(owner)
    if cycle is None:
        return []
    rule = f"{' → '.join(cycle)} is a cycle, which a family cannot have: remove one of these parents"
    parents = budget.spec.parents or ()
    if cycle[1] in parents:
        return [Problem(f"spec.parents[{parents.index(cycle[1])}]", cycle[1], rule)]
    return [Problem("spec.owner", owner, rule)]


def budget_warnings(budget: Budget, before: Budget | None, others: Iterable[BudgetSpec]) -> list[Problem]:
    owners = {spec.owner for spec in others}
    warnings = [
        Problem(
            f"spec.parents[{position}]",
            parent,
            "has no Budget: it belongs to the family only when it has one",
        )
        for position, parent in enumerate(budget.spec.parents or ())
        if parent not in owners
    ]
    return [*warnings, *(_cuts(budget, before) if before is not None else ())]


def _cuts(budget: Budget, before: Budget) -> Iterator[Problem]:
    """Warns of limits that are below what is in use, as the status says (C10)."""
    now = {envelope.name: (position, envelope) for position, envelope in enumerate(budget.spec.envelopes)}
    for usage in before.status.envelopes:
        used = parse_milli(usage.used_gpus)
        position, envelope = now.get(usage.name, (0, None))
        if envelope is None:
            if used:
                yield Problem(
                    "spec.envelopes", usage.name, f"is removed while {_gpus(usage)} of it are in use: {CUT}"
                )
            continue
        field = f"spec.envelopes[{position}]"
        if used > parse_milli(str(envelope.concurrency)):
            yield Problem(
                f"{field}.concurrency",
                envelope.concurrency,
                f"is less than what is in use ({_gpus(usage)}): {CUT}",
            )
        hours = envelope.max_gpu_hours
        if hours is not None and parse_milli(usage.used_gpu_hours) > parse_milli(str(hours)):
            rule = f"is less than the {usage.used_gpu_hours} GPU-hours used so far: it pays for nothing more"
            yield Problem(f"{field}.maxGPUHours", hours, rule)


def _gpus(usage: Usage) -> str:
    return f"{format_milli(parse_milli(usage.used_gpus))} GPUs"
