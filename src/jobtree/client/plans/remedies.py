"""Lists what would let a waiting Run start: remedies with amounts for each reason.

Each remedy concerns one reason. A Run that waits for several reasons needs a remedy for each of them.
"""

from collections.abc import Callable, Iterator

from jobtree.api.schema.near_names import suggestion
from jobtree.api.schema.quantities import format_time
from jobtree.client.plans.funding_remedies import FUNDING, shortage
from jobtree.client.plans.holder_lines import holders_in_flavor
from jobtree.core import Cause, Reason, RunState, World
from jobtree.messages.wording import counted_noun, joined_list, ranges

RemedyText = Callable[[World, RunState, Cause], Iterator[str]]


def remedy_lines(world: World, run: RunState, cause: Cause) -> list[str]:
    """Returns the remedies for one cause."""
    if cause.reason in FUNDING:
        short = shortage(world, run, cause)
        return list(FUNDING[cause.reason](world, run, cause, short)) if short > 0 else []
    return list(PLACING[cause.reason](world, run, cause)) if cause.reason in PLACING else []


def other_flavor(world: World, run: RunState, _: Cause) -> Iterator[str]:
    flavors = sorted(name for name, flavor in world.fleet.flavors.items() if flavor.domains)
    hint = suggestion(run.flavor, flavors) or f"the fleet has {joined_list(flavors) or 'no GPUs at all'}"
    yield f"label nodes gpu.flavor={run.flavor}, or ask for another gpuType: {hint}"


def smaller_groups(_: World, run: RunState, cause: Cause) -> Iterator[str]:
    missing_gpus = cause.need - cause.have
    yield f"it needs a domain of {counted_noun(cause.need, 'GPU')}: {missing_gpus} more than the largest has"
    if run.shape is not None and run.shape.group and run.shape.spread:
        yield f"or ask for locality.groupGPUs of at most {cause.have}"
    else:
        yield "or let it spread over domains: locality.allowCrossGroupSpread: true"


def free_slots(world: World, run: RunState, cause: Cause) -> Iterator[str]:
    """Suggests to add nodes, to wait for Runs that end, or to bring nodes back into service."""
    flavor = world.fleet.flavor(run.flavor)
    capacity = sum(domain.capacity for domain in flavor.domains.values())
    if capacity < cause.need:
        yield f"add nodes: the fleet has {counted_noun(capacity, 'GPU')} of this flavor in service"
    elif flavor.free >= cause.need:
        yield f"{flavor.free} GPUs are free, but {pieces(run)} do not fit on the nodes where they are"
    holders_text = holders_in_flavor(world, run)
    if holders_text:
        yield f"wait for {holders_text}"
    if flavor.opportunistic_slots:
        opportunistic = counted_noun(flavor.opportunistic_slots, "GPU")
        yield f"{opportunistic} run opportunistic work, which ends as soon as this Run can be paid for"
    out_of_service = [
        node.node.name
        for domain in flavor.domains.values()
        for node in domain.nodes.values()
        if not node.is_schedulable
    ]
    if out_of_service:
        yield f"bring back {ranges(out_of_service)}: cordoned, not ready or out of service"


def around_promises(world: World, run: RunState, _: Cause) -> Iterator[str]:
    """Suggests how to use free GPUs that are promised to other Runs: by ending in time (R6)."""
    promises = [
        (other.promise.at, "/".join(other.key))
        for other in world.runs.values()
        if other is not run and other.promise and other.promise.at is not None and other.flavor == run.flavor
    ]
    if promises:
        reserved_for = joined_list([f"{name} (from {format_time(at)})" for at, name in sorted(promises)])
        yield f"GPUs are promised to {reserved_for}"
    runtime = run.run_object.spec.runtime
    if runtime.max_duration is None:
        yield "declare a runtime.maxDuration that ends before then, and it may run on them"
    if runtime.checkpoint is None:
        yield "declare a runtime.checkpoint, and it may run on them provisionally until then"


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
