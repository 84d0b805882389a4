"""Checks the rules of one Budget (specification, section 2), except cycles, which need other Budgets."""

from collections.abc import Iterator

from jobtree.api.kinds.budget import AggregateCap, Budget, BudgetSpec, Envelope
from jobtree.api.schema.problems import ABSENT, Problem, repeats
from jobtree.api.schema.quantities import HOUR, format_duration, parse_time


def budget_problems(budget: Budget) -> Iterator[Problem]:
    spec = budget.spec
    yield from _parent_problems(spec)
    for position, name in repeats(envelope.name for envelope in spec.envelopes):
        yield Problem(f"spec.envelopes[{position}].name", name, "another envelope has this name")
    for position, envelope in enumerate(spec.envelopes):
        yield from _envelope_problems(f"spec.envelopes[{position}]", envelope)
    for position, name in repeats(cap.name for cap in spec.aggregate_caps):
        yield Problem(f"spec.aggregateCaps[{position}].name", name, "another cap has this name")
    flavors = {envelope.name: envelope.flavor for envelope in spec.envelopes}
    for position, cap in enumerate(spec.aggregate_caps):
        yield from _cap_problems(f"spec.aggregateCaps[{position}]", cap, flavors)


def _parent_problems(spec: BudgetSpec) -> Iterator[Problem]:
    parents = spec.parents or ()
    for position, parent in repeats(parents):
        yield Problem(f"spec.parents[{position}]", parent, "is listed twice")
    if spec.owner in parents:
        position = parents.index(spec.owner)
        yield Problem(f"spec.parents[{position}]", spec.owner, "an owner cannot be its own parent")


def _envelope_problems(path: str, envelope: Envelope) -> Iterator[Problem]:
    if envelope.start is None or envelope.end is None:
        return
    window = parse_time(envelope.end) - parse_time(envelope.start)
    most = envelope.concurrency * window
    if window <= 0:
        yield Problem(f"{path}.end", envelope.end, f"must be after start ({envelope.start})")
    elif envelope.max_gpu_hours is not None and envelope.max_gpu_hours * HOUR > most:
        sums = f"{envelope.concurrency} GPUs × {format_duration(window)} = {most // HOUR} GPU-hours"
        rule = f"must be at most concurrency × window ({sums})"
        yield Problem(f"{path}.maxGPUHours", envelope.max_gpu_hours, rule)


def _cap_problems(path: str, cap: AggregateCap, flavors: dict[str, str]) -> Iterator[Problem]:
    for position, name in repeats(cap.envelopes):
        yield Problem(f"{path}.envelopes[{position}]", name, "is listed twice")
    for position, name in enumerate(cap.envelopes):
        field = f"{path}.envelopes[{position}]"
        if name not in flavors:
            yield Problem(field, name, "must be the name of an envelope of this Budget")
        elif cap.flavor not in (None, flavors[name]):
            yield Problem(field, name, f"must be of the cap's flavor {cap.flavor}, not {flavors[name]}")
    if cap.max_concurrency is None and cap.max_gpu_hours is None and cap.max_credits is None:
        yield Problem(path, ABSENT, "must set maxConcurrency, maxGPUHours or maxCredits")
    yield from _mixed_cap_problems(path, cap, {flavors[name] for name in cap.envelopes if name in flavors})


def _mixed_cap_problems(path: str, cap: AggregateCap, spanned: set[str]) -> Iterator[Problem]:
    """Yields the limits that a cap over several flavors cannot have: only credits can be added up."""
    if cap.flavor is not None or len(spanned) <= 1:
        return
    rule = f"a cap over several flavors ({', '.join(sorted(spanned))}) can only set maxCredits"
    for field, limit in (("maxConcurrency", cap.max_concurrency), ("maxGPUHours", cap.max_gpu_hours)):
        if limit is not None:
            yield Problem(f"{path}.{field}", limit, rule)
