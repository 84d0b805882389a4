"""What refuses the pods of a Run, since when, and when it is tried again (N3).

A node, its kubelet or the scheduler refuses a pod on one node; the API server, or a scheduler that does not
answer, refuses pods wherever they would go. A refusal is open until its deadline, ``placementGrace`` after it
began. Then the Run gives the node up for a pause, or waits for a pause. The pause doubles with each time. A
node that refuses again soon after its pause is given up at once, so a payer pays for one grace only.
"""

from collections.abc import Iterable

import msgspec

from jobtree.api.schema.quantities import HOUR, format_time
from jobtree.core.model.gpu_lease import GroupRank

MAX_PAUSE_MS = HOUR
REMEMBERED_MS = HOUR  # after its pause, a refusal counts as the next of the same kind for so long
NODE_PAUSES = 5  # a node is left for so many graces at first, a Run waits for one
MOST_NODES = 4  # nodes in succession that may refuse a Run before it waits
SHORT_GRACES = 8  # a Run that waited for that reason has this part of a grace on other nodes
MOST_REFUSALS = 32  # that are kept
MOST_TEXT = 200


class RefusedPods(msgspec.Struct, frozen=True, order=True):
    """The pods that one refuser refuses now, in its words; an empty node: wherever they go."""

    node: str
    message: str
    ranks: tuple[GroupRank, ...] = ()
    spare_nodes: tuple[str, ...] = ()  # of standby pods


class Refusal(msgspec.Struct, frozen=True, order=True):
    """A refusal with its history. ``until`` is the end of the pause; None: the deadline is not over."""

    node: str
    message: str
    since: int
    deadline: int
    until: int | None = None
    times: int = 0  # how often it was given up in succession
    ranks: tuple[GroupRank, ...] = ()  # empty, with no spares: not seen again since the manager started
    spare_nodes: tuple[str, ...] = ()
    spares_only: bool = False  # the Run itself need not wait

    @property
    def is_open(self) -> bool:
        return self.until is None

    @property
    def where(self) -> str:
        """Who refuses, in which words, and when it is tried again."""
        words = f"node {self.node}: {self.message}" if self.node else self.message
        return words if self.until is None else f"{words} (tried again at {format_time(self.until)})"

    @property
    def next_instant(self) -> int:
        """When the Run leaves, or may try again."""
        return self.deadline if self.until is None else self.until

    def is_due(self, now: int) -> bool:
        """Whether the Run must leave now: the grace is over, and its pods are still refused."""
        return self.is_open and self.deadline <= now and bool(self.ranks or self.spare_nodes)

    def is_paused(self, now: int) -> bool:
        """Whether the node, or the Run, is not tried again yet."""
        return self.until is not None and self.until > now

    def is_remembered(self, now: int) -> bool:
        return self.until is not None and now < self.until + REMEMBERED_MS

    def without_pods(self) -> "Refusal":
        """Returns what is known of the refuser while the Run has no pods."""
        return msgspec.structs.replace(self, ranks=(), spare_nodes=())

    def give_up(self, now: int, grace: int) -> "Refusal":
        """Begins the next pause."""
        times = self.times + 1
        base = max(1, grace * (NODE_PAUSES if self.node else 1))
        pause = min(base << min(times - 1, 16), max(MAX_PAUSE_MS, base))
        return msgspec.structs.replace(
            self,
            until=now + pause,
            times=times,
            ranks=(),
            spare_nodes=(),
            spares_only=not self.ranks,
        )


def reported_refusals(
    known: tuple[Refusal, ...], refused: Iterable[RefusedPods], now: int, grace: int
) -> tuple[Refusal, ...]:
    """Returns the refusals of a Run after a report; open ones that it does not name are over."""
    by_node = {refusal.node: refusal for refusal in known}
    held_before = "" in by_node and by_node[""].is_remembered(now)
    reported = {}
    for pods in refused:
        before = by_node.get(pods.node)
        if before is None or not (before.is_open or before.is_remembered(now)):
            deadline = now + (grace // SHORT_GRACES if held_before else grace)
            before = Refusal(pods.node, "", now, deadline)
        elif not before.is_open:
            before = msgspec.structs.replace(before, since=now, deadline=now, until=None)
        reported[pods.node] = msgspec.structs.replace(
            before, message=pods.message[:MOST_TEXT], ranks=pods.ranks, spare_nodes=pods.spare_nodes
        )
    kept = {node: refusal for node, refusal in by_node.items() if refusal.is_remembered(now)}
    return limited({**kept, **reported}.values())


def given_up(known: tuple[Refusal, ...], now: int, grace: int) -> tuple[Refusal, ...]:
    """Returns the refusals after the Run left all that were due; after many nodes it waits, too."""
    after = {
        refusal.node: refusal.give_up(now, grace) if refusal.is_due(now) else refusal for refusal in known
    }
    paused = sorted(
        (refusal for refusal in after.values() if refusal.node and refusal.is_paused(now)),
        key=lambda refusal: (-refusal.since, refusal),
    )
    if len(paused) >= MOST_NODES and not ("" in after and after[""].is_paused(now)):
        last = f"node {paused[0].node}: {paused[0].message}"
        words = f"{len(paused)} nodes refused its pods, the last was {last}"[:MOST_TEXT]
        before = after.get("")
        times = before.times if before is not None and before.is_remembered(now) else 0
        waits = Refusal("", words, now, now, None, times, ranks=((0, 0),))
        after[""] = waits.give_up(now, grace)
    return limited(after.values())


def limited(refusals: Iterable[Refusal]) -> tuple[Refusal, ...]:
    """Sorts refusals by node; of too many, keeps the newest."""
    newest = sorted(refusals, key=lambda refusal: (-refusal.since, refusal))[:MOST_REFUSALS]
    return tuple(sorted(newest))


def describe(refusals: Iterable[Refusal], most: int = 3) -> str:
    """Who refuses, in their words; of many the first few."""
    texts = [refusal.where for refusal in refusals]
    rest = len(texts) - most
    return "; ".join(texts[:most]) + (f"; and {rest} more" if rest > 0 else "")
