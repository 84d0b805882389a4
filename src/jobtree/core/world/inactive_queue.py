"""Waiting Runs that cannot start until more GPUs or more budget could be free.

A Run that has a promise and a verdict becomes inactive. Inactive Runs are grouped by wait signature: Runs of
one owner with pods of one size that lack the same thing, room on nodes or budget. Within a group they are
sorted by the GPUs that they need at least. The caller gives, for each signature, how many GPUs there can be
at most (``AdmissionPrefilter.max_gpus_for``), and only Runs that need no more than that are reconsidered. Of
the Runs whose promise has no date, the first is reconsidered each time: where it gets no date, no Run behind
it does.
Any change of a Run itself makes it active, until a pass has considered it.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Container, Iterable, Iterator
from operator import itemgetter
from typing import NamedTuple, TypeVar

import msgspec

from jobtree.core.model.gang_shape import GangShape
from jobtree.core.model.promise import CreationOrder, Precedence, Promise
from jobtree.core.model.reasons import Reason
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.node_slots import PodDemand

SortedEntry = TypeVar("SortedEntry", tuple[int, CreationOrder], Precedence)

PLACEMENT_REASONS = frozenset({Reason.NO_FREE_SLOTS, Reason.GROUP_TOO_LARGE, Reason.HELD})


DateSignature = tuple[str, GangShape | None, bool, bool, tuple[str, ...]]


def date_signature(run: RunState, promise: Promise) -> DateSignature:
    """Returns what the search for a date depends on, besides the promises that were made before."""
    return run.owner, run.shape, bool(promise.funding), bool(promise.slips), run.avoided_nodes


class WaitSignature(msgspec.Struct, frozen=True):
    """The properties that Runs which wait for the same thing have in common."""

    flavor: str
    owner: str
    sponsors: tuple[str, ...]
    lacks_room_only: bool  # otherwise also, or only, budget
    pod_size: int
    staying_pods: PodDemand | None  # its pods, if it never fits before a promise: it has no end or checkpoint
    biggest_node: int  # GPUs of the flavor's biggest node; the pod size depends on it
    dateless: DateSignature | None  # of a promise without a date


class MaxGpus(NamedTuple):
    """The GPUs that there can be at most for Runs of one signature."""

    of_others: int
    of_holders: int  # for Runs whose own promise counts on a domain with free GPUs


ReconsideredUpTo = dict[WaitSignature, int]  # GPUs


class InactiveRun(NamedTuple):
    signature: WaitSignature
    needed_gpus: int
    precedence: Precedence


class InactiveQueue:
    def __init__(self) -> None:
        self._runs: dict[CreationOrder, InactiveRun] = {}
        self._by_need: dict[WaitSignature, list[tuple[int, CreationOrder]]] = {}
        self._dateless: dict[WaitSignature, list[Precedence]] = {}  # of promises without a date

    def add(self, run: RunState, biggest_node: int) -> bool:
        """Adds a Run that can be inactive, and returns whether it can."""
        shape, promise = run.shape, run.promise
        if shape is None or promise is None or run.gang or shape.allow_opportunistic or run.avoided_nodes:
            return False
        if not run.waiting or run.verdict is None or run.verdict.phase != "Reserved":
            return False
        is_dateless = promise.at is None and not promise.beyond_depth
        if is_dateless and run.quotas:
            return False  # what is left of a quota differs from tree to tree
        signature = WaitSignature(
            flavor=shape.flavor,
            owner=run.owner,
            sponsors=run.sponsors,
            lacks_room_only=lacks_room_only(run),
            pod_size=shape.pod_size(biggest_node),
            staying_pods=staying_pods(shape, biggest_node),
            biggest_node=biggest_node,
            dateless=date_signature(run, promise) if is_dateless else None,
        )
        self._runs[run.creation_order] = InactiveRun(signature, shape.min, promise.precedence)
        insort(self._by_need.setdefault(signature, []), (shape.min, run.creation_order))
        if signature.dateless is not None:
            insort(self._dateless.setdefault(signature, []), promise.precedence)
        return True

    def remove(self, creation_order: CreationOrder) -> bool:
        """Removes a Run, and returns whether it was inactive."""
        run = self._runs.pop(creation_order, None)
        if run is None:
            return False
        remove_sorted(self._by_need, run.signature, (run.needed_gpus, creation_order))
        if run.signature.dateless is not None:
            remove_sorted(self._dateless, run.signature, run.precedence)
        return True

    def may_reconsider(
        self,
        creation_order: CreationOrder,
        max_gpus: Callable[[WaitSignature], MaxGpus],
        holders: Container[CreationOrder],
    ) -> bool:
        """Whether this inactive Run needs no more GPUs than there can be, or is the first without a date."""
        run = self._runs.get(creation_order)
        if run is None:
            return False
        dateless = self._dateless.get(run.signature)
        is_first = dateless is not None and dateless[0] == run.precedence
        most = max_gpus(run.signature)
        return is_first or run.needed_gpus <= (
            most.of_holders if creation_order in holders else most.of_others
        )

    def to_reconsider(
        self,
        max_gpus: Callable[[WaitSignature], MaxGpus],
        flavors: Container[str],
        holders: Iterable[CreationOrder],
        reconsidered: ReconsideredUpTo,
    ) -> Iterator[CreationOrder]:
        """Yields the inactive Runs of these flavors that need no more GPUs than there can be.

        ``reconsidered`` has the GPUs of earlier calls: Runs that those calls yielded are not yielded again,
        except holders.
        """
        for order in holders:
            run = self._runs.get(order)
            if run is not None and run.needed_gpus <= max_gpus(run.signature).of_holders:
                yield order
        for signature, needs in self._by_need.items():
            if signature.flavor not in flavors:
                continue
            before, now = reconsidered.get(signature, 0), max_gpus(signature).of_others
            if now > before:
                reconsidered[signature] = now
                bounds = (bisect_right(needs, gpus, key=itemgetter(0)) for gpus in (before, now))
                yield from (order for _, order in needs[slice(*bounds)])
            if signature.dateless is not None:
                yield self._dateless[signature][0][2]


def remove_sorted(
    groups: dict[WaitSignature, list[SortedEntry]], signature: WaitSignature, entry: SortedEntry
) -> None:
    """Removes an entry from the sorted list of a group, and the group with its last entry."""
    entries = groups[signature]
    del entries[bisect_left(entries, entry)]
    if not entries:
        del groups[signature]


def staying_pods(shape: GangShape, biggest_node: int) -> PodDemand | None:
    """Returns the pods of a Run without a certain end and without a checkpoint; None for other Runs."""
    if shape.max_duration is not None or shape.checkpoint is not None:
        return None
    return PodDemand(
        shape.pod_size(biggest_node), tolerations=shape.tolerations, node_selector=shape.node_selector
    )


def lacks_room_only(run: RunState) -> bool:
    """Whether the verdict on a Run says that it lacks only room on nodes."""
    return run.verdict is not None and all(cause.reason in PLACEMENT_REASONS for cause in run.verdict.causes)
