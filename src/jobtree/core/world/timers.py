"""The instants at which something becomes due by itself.

A window opens or closes, hours run out, a Run reaches its ``maxDuration``. Each change that could bring such
an instant nearer schedules a timer. A timer is checked when it is first in the queue, and corrected if its
instant has changed since. So the first timer is never late, and nothing is searched. Outdated entries are
removed when they come first, or when there are too many of them.
"""

from collections.abc import Callable, Iterator
from enum import IntEnum
from heapq import heapify, heappop, heappush

from jobtree.api.schema.quantities import MINUTE
from jobtree.core.accounts.budget_index import BudgetIndex
from jobtree.core.accounts.envelope_accounts import FOREVER, Account, EnvelopeState, credits_exhausted_at
from jobtree.core.model.gpu_lease import EnvelopeKey, RunKey
from jobtree.core.runs.run_graph import RunGraph
from jobtree.core.runs.run_state import FINISHED, RunState
from jobtree.core.supply.fleet import Fleet
from jobtree.core.world.upstream_runs import upstream_failure_at


class TimerKind(IntEnum):
    """The kinds of timers; of timers that are due at the same instant, the lower kind is first."""

    RUN = 0
    NODE = 1
    ENVELOPE = 2
    QUOTA = 3
    PROMISE = 4
    FOLLOW = 5
    GROWTH = 6
    RECALL = 7
    REPAY = 8
    IDLE = 9
    SWEEP = 10
    REFUSAL = 11


Subject = tuple[TimerKind, str, str]  # the kind, and a key of two strings

STALE_RATIO = 4  # of entries to scheduled subjects; beyond it, stale entries are removed


class TimerQueue:
    def __init__(
        self, now: int, runs: dict[RunKey, RunState], run_graph: RunGraph, fleet: Fleet, budgets: BudgetIndex
    ) -> None:
        self.now = now  # the present instant; World advances it
        self._sweep_at: int | None = None
        self._runs = runs
        self._run_graph = run_graph
        self._fleet = fleet
        self._budgets = budgets
        self._heap: list[tuple[int, Subject]] = []
        self._scheduled: dict[Subject, int] = {}
        self._idle_ends: dict[RunKey, int] = {}  # when too much budget was left idle for a Run

    def schedule_envelope(self, envelope: EnvelopeState) -> None:
        """Schedules an envelope whose totals changed, and those that share a cap with it."""
        self._schedule((TimerKind.ENVELOPE, *envelope.key))
        for cap in envelope.caps:
            for capped in cap.envelopes:
                if capped is not envelope:
                    self._schedule((TimerKind.ENVELOPE, *capped.key))

    def schedule_run(self, run: RunState) -> None:
        """Schedules everything that may become due for a changed Run; often that is nothing."""
        key, shape, running = run.key, run.shape, run.phase == "Running"
        self._schedule((TimerKind.RUN, *key), possible=running)
        self._schedule((TimerKind.PROMISE, *key), possible=run.promise is not None)
        self._schedule((TimerKind.FOLLOW, *key), possible=run.phase == "Waiting")
        may_grow = running and shape is not None and (shape.malleable or shape.spares > 0)
        self._schedule((TimerKind.GROWTH, *key), possible=may_grow)
        self._schedule((TimerKind.RECALL, *key), possible=running and run.reservations_made > 0)
        self._schedule((TimerKind.REPAY, *key), possible=running and run.opportunistic_gpus > 0)
        self._schedule((TimerKind.REFUSAL, *key), possible=bool(run.refusals))

    def schedule_quotas(self, quotas: tuple[Account, ...]) -> None:
        for account in quotas:
            namespace, _, name = account.label.partition("/")
            self._schedule((TimerKind.QUOTA, namespace, name))

    def set_idle_end(self, run_key: RunKey, at: int | None) -> None:
        """Sets when the budget that may be left idle for a Run without a date is used up; None: never."""
        if at is None:
            self._idle_ends.pop(run_key, None)
        else:
            self._idle_ends[run_key] = at
            self._schedule((TimerKind.IDLE, *run_key))

    def schedule_node(self, name: str) -> None:
        self._schedule((TimerKind.NODE, name, ""))

    def schedule_sweep(self, at: int | None) -> None:
        """Schedules the next sweep (R14); None: there is nothing to look at."""
        self._sweep_at = at
        self._schedule((TimerKind.SWEEP, "", ""))

    def take_sweep(self) -> bool:
        """Returns whether a sweep has become due, and schedules none until the next call."""
        is_due = self._sweep_at is not None and self._sweep_at <= self.now
        if is_due:
            self.schedule_sweep(None)
        return is_due

    def _schedule(self, subject: Subject, *, possible: bool = True) -> None:
        """Schedules a subject if it has an instant; the caller may know already that it has none."""
        at = self._instant(subject) if possible else None
        if at is None:
            self._scheduled.pop(subject, None)
        elif self._scheduled.get(subject, FOREVER) > at:
            self._scheduled[subject] = at
            heappush(self._heap, (at, subject))
            if len(self._heap) > STALE_RATIO * (len(self._scheduled) + 1):
                self._heap = [(instant, scheduled) for scheduled, instant in self._scheduled.items()]
                heapify(self._heap)

    def next_instant(self) -> int | None:
        """Returns the next instant at which something is due, in the past or in the future."""
        timer = self._first()
        return None if timer is None else timer[0]

    def next_due(self, until: int) -> tuple[int, Subject] | None:
        """Returns the first timer that is due at or before that instant."""
        timer = self._first()
        return None if timer is None or timer[0] > until else timer

    def _first(self) -> tuple[int, Subject] | None:
        """Returns the first timer that is still true, and corrects those before it."""
        while self._heap:
            at, subject = self._heap[0]
            actual = self._instant(subject)
            if actual == at:
                return at, subject
            heappop(self._heap)
            if self._scheduled.get(subject) == at:
                del self._scheduled[subject]
            if actual is not None and self._scheduled.get(subject, FOREVER) > actual:
                self._scheduled[subject] = actual
                heappush(self._heap, (actual, subject))
        return None

    def _instant(self, subject: Subject) -> int | None:
        kind, first, second = subject
        return INSTANTS[kind](self, (first, second))

    def _if_future(self, at: int | None) -> int | None:
        """Drops an instant that is reached: it is handled when the clock advances, not by a pass."""
        return at if at is not None and at > self.now else None

    def _run_instant(self, key: RunKey) -> int | None:
        run = self._runs.get(key)
        return run.known_end if run is not None and run.phase == "Running" else None

    def _promise_instant(self, key: RunKey) -> int | None:
        run = self._runs.get(key)
        if run is None or run.promise is None or run.phase in FINISHED or run.promise.at is None:
            return None
        return max(run.promise.at, self.now)  # no Run starts in the past: an overdue promise is due now

    def _growth_instant(self, key: RunKey) -> int | None:
        """Returns when a Run that lacks GPUs or spares may get them."""
        run = self._runs.get(key)
        return self._if_future(may_grow_at(run) if run is not None and run.wants_growth else None)

    def _recall_instant(self, key: RunKey) -> int | None:
        """Returns when a promised start may next lose its payers of the family, or its slots."""
        run = self._runs.get(key)
        if run is None:
            return None
        ends = (self._if_future(run.recallable_from), self._if_future(run.reclaimable_from))
        return min((at for at in ends if at is not None), default=None)

    def _repay_instant(self, key: RunKey) -> int | None:
        """Returns when the opportunistic GPUs of a Run may find a payer."""
        run = self._runs.get(key)
        return self._if_future(run.payable_at if run is not None and run.opportunistic_gpus else None)

    def _idle_instant(self, key: RunKey) -> int | None:
        """Returns when budget is kept no longer for a Run without a date (C12)."""
        run = self._runs.get(key)
        return self._idle_ends.get(key) if run is not None and run.waits_for_funding else None

    def _sweep_instant(self, _key: tuple[str, str]) -> int | None:
        return self._if_future(self._sweep_at)

    def _refusal_instant(self, key: RunKey) -> int | None:
        """Returns when a Run whose pods are refused next leaves a node, or may try one again (N3)."""
        run = self._runs.get(key)
        instants = (refusal.next_instant for refusal in run.refusals) if run is not None else ()
        return min((at for at in instants if at > self.now), default=None)

    def _follow_instant(self, key: RunKey) -> int | None:
        """Returns when a waiting Run fails because an upstream Run failed."""
        run = self._runs.get(key)
        if run is None or run.phase != "Waiting" or run.cancelled:
            return None
        failure = upstream_failure_at(self._run_graph, run)
        return failure[0] if failure else None

    def _quota_instant(self, key: RunKey) -> int | None:
        account = self._run_graph.quota(key)
        return account.exhausted_at() if account else None

    def _node_instant(self, key: tuple[str, str]) -> int | None:
        """Returns when a node may fail (F2), or others may because it counts no longer (F2c)."""
        return self._if_future(self._fleet.grace_end(key[0]))

    def _envelope_instant(self, key: EnvelopeKey) -> int | None:
        envelope = self._budgets.envelopes.get(key)
        if envelope is None:
            return None
        if self.now < envelope.start:
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
    TimerKind.IDLE: TimerQueue._idle_instant,  # noqa: SLF001
    TimerKind.SWEEP: TimerQueue._sweep_instant,  # noqa: SLF001
    TimerKind.REFUSAL: TimerQueue._refusal_instant,  # noqa: SLF001
}


def may_grow_at(run: RunState) -> int:
    """Returns when a Run may grow: once in a checkpoint interval, or once a minute without one (E1)."""
    checkpoint = run.shape.checkpoint if run.shape else None
    return run.changed_at + (MINUTE if checkpoint is None else checkpoint)


def funding_ends_at(envelope: EnvelopeState) -> int | None:
    """Returns when the envelope's funded leases end next, by its window or by hours; None: they do not."""
    if not envelope.leases:
        return None
    ends = [at for at, _ in exhaustion_instants(envelope)]
    if envelope.end < FOREVER:
        ends.append(envelope.end)
    return max(min(ends), envelope.amended_at) if ends else None


def exhaustion_instants(envelope: EnvelopeState) -> Iterator[tuple[int, bool]]:
    """Returns when open-ended leases use up each limit, and whether only borrowed leases end then."""
    if envelope.account.charge == envelope.account.declared:
        return iter(())  # it pays for no open-ended lease, so a limit that others use up ends nothing here
    instants = [(envelope.account.exhausted_at(), False), (envelope.lending_account.exhausted_at(), True)]
    if envelope.max_credits is not None:
        instants.append((credits_exhausted_at([envelope], envelope.max_credits), False))
    for cap in envelope.caps:
        instants.append((cap.account.exhausted_at(), False))
        if cap.max_credits is not None:
            instants.append((credits_exhausted_at(cap.envelopes, cap.max_credits), False))
    return ((at, borrowed) for at, borrowed in instants if at is not None)
