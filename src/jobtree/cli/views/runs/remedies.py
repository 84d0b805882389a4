"""What would unblock a waiting Run: for each reason, sentences with amounts, computed from the world.

Each sentence is about its reason alone. A Run that waits for several reasons needs one remedy of each.
"""

from collections.abc import Callable, Iterator

from jobtree.api.schema.quantities import format_time
from jobtree.cli.shell.wording import counted_noun, joined_list, ranges, suggestion
from jobtree.cli.views.runs.funding_remedies import FUNDING, shortage
from jobtree.cli.views.runs.holder_lines import holders_in_flavor
from jobtree.core import Cause, Reason, RunState, World

RemedyText = Callable[[World, RunState, Cause], Iterator[str]]


def remedy_lines(world: World, run: RunState, why: Cause) -> list[str]:
    """What would remove this reason."""
    if why.reason in FUNDING:
        short = shortage(world, run, why)
        return list(FUNDING[why.reason](world, run, why, short)) if short > 0 else []
    return list(PLACING[why.reason](world, run, why)) if why.reason in PLACING else []


def other_flavor(world: World, run: RunState, _: Cause) -> Iterator[str]:
    known = sorted(name for name, flavor in world.fleet.flavors.items() if flavor.domains)
    hint = suggestion(run.flavor, known) or f"the fleet has {joined_list(known) or 'no GPUs at all'}"
    yield f"label nodes gpu.flavor={run.flavor}, or ask for another gpuType: {hint}"


def smaller_groups(_: World, run: RunState, why: Cause) -> Iterator[str]:
    more = why.need - why.have
    yield f"it needs a domain of {counted_noun(why.need, 'GPU')}: {more} more than the largest has"
    if run.shape is not None and run.shape.group and run.shape.spread:
        yield f"or ask for locality.groupGPUs of at most {why.have}"
    else:
        yield "or let it spread over domains: locality.allowCrossGroupSpread: true"


def free_slots(world: World, run: RunState, why: Cause) -> Iterator[str]:
    """Somebody ends, a node comes back, or the fleet grows."""
    flavor = world.fleet.flavor(run.flavor)
    capacity = sum(domain.capacity for domain in flavor.domains.values())
    if capacity < why.need:
        yield f"add nodes: the fleet has {counted_noun(capacity, 'GPU')} of this flavor in service"
    elif flavor.free >= why.need:
        yield f"{flavor.free} GPUs are free, but {pieces(run)} do not fit into what is free where"
    holders = holders_in_flavor(world, run)
    if holders:
        yield f"wait for {holders}"
    if flavor.opportunistic_slots:
        unpaid = counted_noun(flavor.opportunistic_slots, "GPU")
        yield f"{unpaid} run unpaid and give way as soon as it can be paid for"
    away = [
        node.node.name
        for domain in flavor.domains.values()
        for node in domain.nodes.values()
        if not node.is_schedulable
    ]
    if away:
        yield f"bring back {ranges(away)}: cordoned, not ready or out of service"


def around_promises(world: World, run: RunState, _: Cause) -> Iterator[str]:
    """Others were promised the GPUs that are free: what is certain to be gone in time may use them (R6)."""
    promises = [
        (one.promise.at, "/".join(one.key))
        for one in world.runs.values()
        if one is not run and one.promise and one.promise.at is not None and one.flavor == run.flavor
    ]
    if promises:
        named = joined_list([f"{name} (from {format_time(at)})" for at, name in sorted(promises)])
        yield f"GPUs are promised to {named}"
    runtime = run.run_object.spec.runtime
    if runtime.max_duration is None:
        yield "declare a runtime.maxDuration that ends before then, and it may run on them"
    if runtime.checkpoint is None:
        yield "declare a runtime.checkpoint, and it may run on them provisionally: it goes first then"


def pieces(run: RunState) -> str:
    shape = run.shape
    if shape is None or not shape.group:
        return "its pods"
    return f"groups of {shape.group} in one domain each"


PLACING: dict[Reason, RemedyText] = {
    Reason.NO_SUCH_FLAVOR: other_flavor,
    Reason.GROUP_TOO_LARGE: smaller_groups,
    Reason.NO_FREE_SLOTS: free_slots,
    Reason.HELD: around_promises,
}
