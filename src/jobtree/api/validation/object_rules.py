"""Checks all rules of one object and returns each problem with the field, the value and the rule.

``core.reporting.cross_object_rules`` checks the rules that need other objects, such as cycles of families.
"""

from collections.abc import Iterator

from jobtree.api.kinds.budget import Budget
from jobtree.api.kinds.lease import Lease
from jobtree.api.kinds.reservation import Reservation
from jobtree.api.kinds.run import Gang, Run, Stage
from jobtree.api.kubernetes.pod_template_rules import grace_problems
from jobtree.api.schema.problems import ABSENT, Problem
from jobtree.api.schema.quantities import parse_slots, parse_time
from jobtree.api.validation.budget_rules import budget_problems
from jobtree.api.validation.gang_rules import run_problems


def problems(parsed: Budget | Run | Reservation | Lease) -> list[Problem]:
    """Returns all rules that an object breaks by itself."""
    match parsed:
        case Budget():
            return list(budget_problems(parsed))
        case Run():
            return list(run_problems(parsed))
        case Lease():
            return list(_lease_problems(parsed))
        case Reservation():
            return []


def policy_problems(run: Run, max_grace_ms: int) -> list[Problem]:
    """Returns what the policy does not allow in a Run: templates with a longer grace period (F6)."""
    return list(_grace_problems("spec", run.spec, run.spec.stages, max_grace_ms))


def _grace_problems(path: str, gang: Gang, stages: tuple[Gang, ...], max_grace_ms: int) -> Iterator[Problem]:
    if gang.template is not None:
        yield from grace_problems(f"{path}.template", gang.template.document(), max_grace_ms)
    for position, stage in enumerate(stages):
        below = stage.stages if isinstance(stage, Stage) else ()
        yield from _grace_problems(f"{path}.stages[{position}]", stage, below, max_grace_ms)


def _lease_problems(lease: Lease) -> Iterator[Problem]:
    taken: dict[str, int] = {}
    for position, text in enumerate(lease.spec.slots):
        field = f"spec.slots[{position}]"
        try:
            ((node, mask),) = parse_slots([text]).items()
        except ValueError:
            yield Problem(field, text, "a range of slots must not end before it begins")
            continue
        if taken.get(node, 0) & mask:
            yield Problem(field, text, "a slot may be listed only once")
        taken[node] = taken.get(node, 0) | mask
    end, reason = lease.status.end, lease.status.closure_reason
    if end is None and reason is not None:
        yield Problem("status.end", ABSENT, "is required with closureReason")
    if end is not None and reason is None:
        yield Problem("status.closureReason", ABSENT, "is required with end")
    if end is not None and parse_time(end) < parse_time(lease.spec.start):
        yield Problem("status.end", end, f"must not be before spec.start ({lease.spec.start})")
