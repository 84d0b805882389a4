"""What is wrong with an object among others, and what its author may not have meant.

Refused: a Budget that closes a cycle of parents (C1), a Run that waits for itself by way of others (J1).
Only told, since it may come right by itself: an owner without a Budget, sponsors that do not lend, upstreams
that do not exist, parents without a Budget, and limits below what is in use (C10).
"""

from collections.abc import Callable, Iterable, Iterator

from jobtree.api.kinds.budget import Budget, BudgetSpec, Envelope, Usage
from jobtree.api.kinds.run import Gang, Run, Stage
from jobtree.api.schema.problems import Problem
from jobtree.api.schema.quantities import format_milli, parse_milli
from jobtree.core.accounts.envelope_accounts import lending_entry_matches
from jobtree.core.accounts.family import Family, prefixes

Lookup = Callable[[str], Run | None]
"""A Run of the namespace by its name."""


# Runs


def run_reference_problems(run_object: Run, named: Lookup) -> list[Problem]:
    follow = run_object.spec.follow
    for position, name in enumerate(follow.after if follow else ()):
        path = _way(name, run_object, named)
        if path:
            shown = " after ".join([run_object.metadata.name, *path])
            rule = f"{shown} is a cycle: none of them could ever start: leave one of these out"
            return [Problem(f"spec.follow.after[{position}]", name, rule)]
    return []


def _way(start: str, run_object: Run, named: Lookup) -> list[str]:
    """From an upstream, by what it waits for, back to the Run or one of its stages; empty: there is none."""
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
        for other in _upstreams(named(name), named):
            if other not in came_from:
                came_from[other] = name
                waiting.append(other)
    return []


def _upstreams(run_object: Run | None, named: Lookup) -> Iterator[str]:
    """What a Run waits for; a stage waits for what its tree waits for, too."""
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
        f"this owner has no Budget: {payer} is asked to pay"
        if payer
        else "neither this owner nor any above it has a Budget: nobody can pay"
    )
    yield Problem("spec.owner", owner, rule)


def _sponsor_advice(run_object: Run, budgets: list[BudgetSpec]) -> Iterator[Problem]:
    flavors = sorted(set(_flavors(run_object.spec, run_object.spec.stages)))
    for position, sponsor in enumerate(run_object.spec.funding.sponsors):
        field = f"spec.funding.sponsors[{position}]"
        if not run_object.spec.funding.allow_borrow:
            yield Problem(field, sponsor, "is not asked without funding.allowBorrow: true")
            continue
        envelopes = [envelope for spec in budgets if spec.owner == sponsor for envelope in spec.envelopes]
        for flavor in flavors:
            if not any(_lends(envelope, flavor, run_object.spec.owner) for envelope in envelopes):
                rule = f"has no envelope of {flavor} that lends to {run_object.spec.owner}: it cannot pay"
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
            yield Problem(field, name, f"there is no such Run in {where}: this one waits until there is")
        elif upstream.status.phase == "Failed":
            yield Problem(field, name, "that Run has failed: this one does not start unless it is run again")


# Budgets


def family_cycle_problems(budget: Budget, others: Iterable[BudgetSpec]) -> list[Problem]:
    """``others`` are all other Budgets."""
    owner = budget.spec.owner
    cycle = Family([budget.spec, *others]).cycle_through(owner)
    if cycle is None:
        return []
    rule = f"{' → '.join(cycle)} is a cycle: a family has none: leave one of these out"
    parents = budget.spec.parents or ()
    if cycle[1] in parents:
        return [Problem(f"spec.parents[{parents.index(cycle[1])}]", cycle[1], rule)]
    return [Problem("spec.owner", owner, rule)]


def budget_warnings(budget: Budget, before: Budget | None, others: Iterable[BudgetSpec]) -> list[Problem]:
    owners = {spec.owner for spec in others}
    found = [
        Problem(f"spec.parents[{position}]", parent, "has no Budget: it is no relative until it has one")
        for position, parent in enumerate(budget.spec.parents or ())
        if parent not in owners
    ]
    return [*found, *(_cuts(budget, before) if before is not None else ())]


def _cuts(budget: Budget, before: Budget) -> Iterator[Problem]:
    """What is in use, as the status says, and would not be covered any more (C10)."""
    now = {envelope.name: (position, envelope) for position, envelope in enumerate(budget.spec.envelopes)}
    for usage in before.status.envelopes:
        used = parse_milli(usage.used_gpus)
        position, envelope = now.get(usage.name, (0, None))
        if envelope is None:
            if used:
                yield Problem("spec.envelopes", usage.name, f"is taken away while {_in_use(usage)}")
            continue
        field = f"spec.envelopes[{position}]"
        if used > parse_milli(str(envelope.concurrency)):
            yield Problem(f"{field}.concurrency", envelope.concurrency, f"is less than {_in_use(usage)}")
        hours = envelope.max_gpu_hours
        if hours is not None and parse_milli(usage.used_gpu_hours) > parse_milli(str(hours)):
            rule = f"is less than what was used ({usage.used_gpu_hours} GPU-hours): it pays for nothing more"
            yield Problem(f"{field}.maxGPUHours", hours, rule)


def _in_use(usage: Usage) -> str:
    gpus = format_milli(parse_milli(usage.used_gpus))
    return f"what is in use ({gpus} GPUs): the excess, newest first, is paid by others or is demoted"
