"""Alarms: the instants at which something happens by itself.

A window opens or closes, hours run out, a Run reaches its ``maxDuration``. Each change that could bring
such an instant nearer sets an alarm; whether it still holds is asked when it comes up. So the first
alarm is never late, and nothing is searched. What is no longer watched leaves nothing behind.
"""

from collections.abc import Callable, Iterator
from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from jobtree.api.schema.quantities import MINUTE
from jobtree.core.accounts.envelope_accounts import FOREVER, Account, EnvelopeState, credits_exhausted_at
from jobtree.core.model.gpu_lease import EnvelopeKey, RunKey
from jobtree.core.runs.run_state import FINISHED, RunState
from jobtree.core.world.upstream_runs import upstream_failure_at

if TYPE_CHECKING:
    from jobtree.core.world.world import World


class TimerKind(IntEnum):
    """What may be due, in the order in which things due at one instant happen."""

    RUN = 0
    NODE = 1
    ENVELOPE = 2
    QUOTA = 3
    PROMISE = 4
    FOLLOW = 5
    GROWTH = 6
    RECALL = 7
    REPAY = 8


Subject = tuple[TimerKind, str, str]  # what, and its key

STALE_RATIO = 4  # times as many alarms as there are things to watch: the others are swept out


class TimerQueue:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._heap: list[tuple[int, Subject]] = []
        self._set: dict[Subject, int] = {}

    def schedule_envelope(self, envelope: EnvelopeState) -> None:
        """Its totals changed, and with them those of the caps above it and of all that share them."""
        self._watch((TimerKind.ENVELOPE, *envelope.key))
        for cap in envelope.caps:
            for other in cap.envelopes:
                if other is not envelope:
                    self._watch((TimerKind.ENVELOPE, *other.key))

    def schedule_run(self, run: RunState) -> None:
        """It changed. Most of the time nothing about it is due by itself, and that is seen at once."""
        key, shape, running = run.key, run.shape, run.phase == "Running"
        self._watch((TimerKind.RUN, *key), running)
        self._watch((TimerKind.PROMISE, *key), run.promise is not None)
        self._watch((TimerKind.FOLLOW, *key), run.phase == "Waiting")
        self._watch(
            (TimerKind.GROWTH, *key), running and shape is not None and (shape.malleable or shape.spares > 0)
        )
        self._watch((TimerKind.RECALL, *key), running and run.reservations_made > 0)
        self._watch((TimerKind.REPAY, *key), running and run.opportunistic_gpus > 0)

    def schedule_quotas(self, quotas: tuple[Account, ...]) -> None:
        for account in quotas:
            namespace, _, name = account.label.partition("/")
            self._watch((TimerKind.QUOTA, namespace, name))

    def schedule_node(self, name: str) -> None:
        self._watch((TimerKind.NODE, name, ""))

    def _watch(self, subject: Subject, possible: bool = True) -> None:  # noqa: FBT001, FBT002  what is known already
        at = self._instant(subject) if possible else None
        if at is None:
            self._set.pop(subject, None)
        elif self._set.get(subject, FOREVER) > at:
            self._set[subject] = at
            heappush(self._heap, (at, subject))
            if len(self._heap) > STALE_RATIO * (len(self._set) + 1):
                self._heap = [(when, what) for what, when in self._set.items()]
                heapify(self._heap)

    def next_instant(self) -> int | None:
        """The next instant at which something is due, in the past or in the future."""
        found = self._peek()
        return None if found is None else found[0]

    def next_due(self, until: int) -> tuple[int, Subject] | None:
        """The first thing due at or before that instant."""
        found = self._peek()
        return None if found is None or found[0] > until else found

    def _peek(self) -> tuple[int, Subject] | None:
        while self._heap:
            at, subject = self._heap[0]
            actual = self._instant(subject)
            if actual == at:
                return at, subject
            heappop(self._heap)
            if self._set.get(subject) == at:
                del self._set[subject]
            if actual is not None and self._set.get(subject, FOREVER) > actual:
                self._set[subject] = actual
                heappush(self._heap, (actual, subject))
        return None

    def _instant(self, subject: Subject) -> int | None:
        kind, first, second = subject
        return INSTANTS[kind](self, (first, second))

    def _to_come(self, at: int | None) -> int | None:
        """The instant, while it lies ahead: what is asked when the clock moves is never due by itself."""
        return at if at is not None and at > self._world.now else None

    def _run_instant(self, key: RunKey) -> int | None:
        run = self._world.runs.get(key)
        return run.known_end if run is not None and run.phase == "Running" else None

    def _promise_instant(self, key: RunKey) -> int | None:
        run = self._world.runs.get(key)
        if run is None or run.promise is None or run.phase in FINISHED or run.promise.at is None:
            return None
        return max(run.promise.at, self._world.now)  # nothing starts in the past: it comes after all else

    def _growth_instant(self, key: RunKey) -> int | None:
        """When a Run that wants to may grow or get missing spares; asked when the clock moves."""
        run = self._world.runs.get(key)
        return self._to_come(may_grow_at(run) if run is not None and run.wants_growth else None)

    def _recall_instant(self, key: RunKey) -> int | None:
        """When whoever lent a Run its promised start may recall the money; asked when the clock moves."""
        run = self._world.runs.get(key)
        return self._to_come(run.protected_until if run is not None else None)

    def _repay_instant(self, key: RunKey) -> int | None:
        """When somebody may pay for what a Run holds unpaid; asked when the clock moves."""
        run = self._world.runs.get(key)
        return self._to_come(run.payable_at if run is not None and run.opportunistic_gpus else None)

    def _follow_instant(self, key: RunKey) -> int | None:
        """When a Run that waits for others fails because one of them did."""
        run = self._world.runs.get(key)
        if run is None or run.phase != "Waiting" or run.cancelled:
            return None
        failure = upstream_failure_at(self._world, run)
        return failure[0] if failure else None

    def _quota_instant(self, key: RunKey) -> int | None:
        account = self._world.run_graph.quota(key)
        return account.exhausted_at() if account else None

    def _node_instant(self, key: tuple[str, str]) -> int | None:
        """When a node that is not Ready will have failed (F2); that is noticed when the clock moves."""
        state = self._world.fleet.nodes.get(key[0])
        since = None if state is None else state.node.not_ready_since_ms
        return self._to_come(None if since is None else since + self._world.policy.node_grace_ms)

    def _envelope_instant(self, key: EnvelopeKey) -> int | None:
        envelope = self._world.budgets.envelopes.get(key)
        if envelope is None:
            return None
        if self._world.now < envelope.start:
            return envelope.start
        return funding_ends_at(envelope)


INSTANTS: dict[TimerKind, Callable[[TimerQueue, tuple[str, str]], int | None]] = {
    TimerKind.RUN: TimerQueue._run_instant,  # noqa: SLF001  one table of its own methods
    TimerKind.NODE: TimerQueue._node_instant,  # noqa: SLF001
    TimerKind.ENVELOPE: TimerQueue._envelope_instant,  # noqa: SLF001
    TimerKind.QUOTA: TimerQueue._quota_instant,  # noqa: SLF001
    TimerKind.PROMISE: TimerQueue._promise_instant,  # noqa: SLF001
    TimerKind.FOLLOW: TimerQueue._follow_instant,  # noqa: SLF001
    TimerKind.GROWTH: TimerQueue._growth_instant,  # noqa: SLF001
    TimerKind.RECALL: TimerQueue._recall_instant,  # noqa: SLF001
    TimerKind.REPAY: TimerQueue._repay_instant,  # noqa: SLF001
}


def may_grow_at(run: RunState) -> int:
    """A Run grows at most once in a checkpoint interval, or in a minute without one (E1)."""
    checkpoint = run.shape.checkpoint if run.shape else None
    return run.changed_at + (MINUTE if checkpoint is None else checkpoint)


def funding_ends_at(envelope: EnvelopeState) -> int | None:
    """When this envelope's funded leases end next, by its window or by hours; None: not by itself."""
    if not envelope.leases:
        return None
    ends = [at for at, _ in exhaustion_instants(envelope)]
    if envelope.end < FOREVER:
        ends.append(envelope.end)
    return max(min(ends), envelope.amended_at) if ends else None


def exhaustion_instants(envelope: EnvelopeState) -> Iterator[tuple[int, bool]]:
    """When open-ended leases use up each limit in hours or credits; whether only borrowed ones end then."""
    if envelope.account.charge == envelope.account.declared:
        return iter(())  # it pays for none: what others use up of a cap ends nothing here
    found = [(envelope.account.exhausted_at(), False), (envelope.lending_account.exhausted_at(), True)]
    if envelope.max_credits is not None:
        found.append((credits_exhausted_at([envelope], envelope.max_credits), False))
    for cap in envelope.caps:
        found.append((cap.account.exhausted_at(), False))
        if cap.max_credits is not None:
            found.append((credits_exhausted_at(cap.envelopes, cap.max_credits), False))
    return ((at, borrowed) for at, borrowed in found if at is not None)
