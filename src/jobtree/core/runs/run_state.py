"""The state of one Run in the world.

Only the methods of ``RunState`` change it. ``World`` and its parts call them and update the indexes that
depend on the change. An action on a Run is undone exactly: ``save_state`` returns all that an action may
change about the Run itself, ``restore_state`` puts it back, and leases are added and removed one by one.
"""

from operator import attrgetter
from typing import Any, Literal

import msgspec

from jobtree.api.kinds.run import Phase, Run, RunStatus
from jobtree.api.schema.quantities import MINUTE, SECOND, parse_duration, parse_time
from jobtree.core.accounts.envelope_accounts import FOREVER, Account
from jobtree.core.model.actions import Action
from jobtree.core.model.gang_shape import GangShape, gang_shape
from jobtree.core.model.gpu_lease import GpuLease, GroupRank, RunKey
from jobtree.core.model.outcomes import NEW_ATTEMPT_KINDS
from jobtree.core.model.promise import CreationOrder, Precedence, Promise
from jobtree.core.model.reasons import Reason, Verdict
from jobtree.core.model.refusals import Refusal
from jobtree.core.runs.run_usage import RunUsage

FINISHED = frozenset({"Completed", "Failed"})
MIN_RESTART_DELAY = 10 * SECOND
MAX_RESTART_DELAY = 10 * MINUTE
PROTECTION_MS = 30 * MINUTE  # how long a promised start keeps its slots, also without a payer (R5)

PodSlots = tuple[str, int]  # the node of a pod, and the mask of its slots there
RankSlots = dict[GroupRank, PodSlots]


class RankLoss(msgspec.Struct, frozen=True, order=True):
    """The loss of one pod of one attempt: it failed, or was evicted or deleted."""

    at: int
    group_rank: GroupRank
    attempt: int
    failed: bool
    message: str = ""


DateSearchGeneration = tuple[int, int]  # counters of events, see date_search_generation
SavedRunState = tuple[Any, ...]  # the promise, and the values of SAVED_FIELDS

SAVED_FIELDS = (
    "phase",
    "phase_at",
    "since",
    "pod_size",
    "attempt",
    "avoided_nodes",
    "changed_at",
    "growth_paused",
    "refusals",
    "refused_everywhere",
    "restarts",
    "resume_at",
    "leases_opened",
    "lotteries_lost",
    "not_drawn_at",
    "promised_start",
    "provisional",
    "reservations_made",
    "times_stopped",
)
_saved_values = attrgetter("promise", *SAVED_FIELDS)


class RunState:
    """One Run: its shape, its leases, its promise, and its tree, gang and quotas."""

    __slots__ = (
        "attempt",
        "avoided_nodes",
        "borrowed_gpus",
        "cancelled",
        "changed_at",
        "created",
        "creation_order",
        "date_search_generation",
        "evicted_spare_nodes",
        "gang",
        "growth_paused",
        "key",
        "leases",
        "leases_opened",
        "lotteries_lost",
        "not_drawn_at",
        "opportunistic_gpus",
        "outcome",
        "parent",
        "payable_at",
        "phase",
        "phase_at",
        "pod_size",
        "promise",
        "promised_start",
        "provisional",
        "queue_checked_generation",
        "queued",
        "quotas",
        "rank_losses",
        "rank_slots",
        "recorded_interim_until",
        "refusals",
        "refused_everywhere",
        "reservations_made",
        "restarts",
        "resume_at",
        "revision",
        "run_object",
        "shape",
        "since",
        "times_stopped",
        "uid",
        "usage",
        "verdict",
        "width",
    )

    def __init__(self, run_object: Run, now: int) -> None:
        meta, status = run_object.metadata, run_object.status
        self.key: RunKey = (meta.namespace, meta.name)
        self.uid = meta.uid
        self.created = parse_time(meta.creation_timestamp) if meta.creation_timestamp else now
        self.creation_order: CreationOrder = (self.created, *self.key)
        self.leases: dict[str, GpuLease] = {}  # open leases by name
        self.usage = RunUsage()
        self.quotas: tuple[Account, ...] = ()  # of the trees above it, nearest first
        self.width = self.opportunistic_gpus = self.borrowed_gpus = 0
        self.parent: RunKey | None = None  # the tree that it is a stage of
        self.gang: tuple[RunKey, ...] = ()  # all stages that start together with it, including itself
        self.phase: Phase = self._reported_phase(run_object)
        self.phase_at = self.created  # when it entered this phase
        for condition in status.conditions:
            if condition.type in ("Admitted", "Finished") and condition.last_transition_time:
                self.phase_at = max(self.phase_at, parse_time(condition.last_transition_time))
        allocation = status.allocation
        self.since = parse_time(allocation.since) if allocation else None
        promised_start = allocation.promised_start if allocation else None
        self.promised_start = parse_time(promised_start) if promised_start else None  # of this admission
        not_drawn_at = allocation.not_drawn_at if allocation else None
        self.not_drawn_at = parse_time(not_drawn_at) if not_drawn_at else None  # of this admission
        self.pod_size = allocation.gpus_per_pod if allocation else 0
        self.revision = status.revision  # how many decisions changed its leases or its attempt
        self.attempt = status.attempt
        self.changed_at = parse_time(status.changed_at) if status.changed_at else self.since or 0
        self.restarts = status.restarts
        self.resume_at = parse_time(status.resume_at) if status.resume_at else 0
        self.rank_slots: RankSlots = {}
        self.rank_losses: list[RankLoss] = []
        self.evicted_spare_nodes: dict[str, None] = {}  # nodes from which its spares were evicted
        self.refusals: tuple[Refusal, ...] = ()
        self.set_refusals(refusals_in_status(status), now)
        self.leases_opened = status.leases_opened
        self.lotteries_lost = status.lotteries_lost
        self.times_stopped = status.times_stopped  # by Jobtree, not by a fault
        self.provisional = status.provisional  # it runs on promised slots or budget until they are due
        self.promise: Promise | None = None
        self.recorded_interim_until: int | None = None  # interim_until as its envelopes have it
        self.reservations_made = status.reservations_made
        self.outcome: tuple[Literal["Complete", "Fail"], int] | None = None
        self.verdict: Verdict | None = None
        self.queued = False
        self.date_search_generation: DateSearchGeneration | None = None  # at the last search for a date
        self.payable_at: int | None = None  # when its opportunistic GPUs may find a payer, if nothing changes
        self.apply_edit(run_object)

    # Changes of its object, and of its relations to other Runs

    def apply_edit(self, run_object: Run) -> None:
        """Takes over an edited spec, so that the next pass considers the Run again."""
        self.run_object = run_object
        self.shape: GangShape | None = gang_shape(run_object.spec)
        self.cancelled = run_object.metadata.deletion_timestamp is not None
        self.queue_checked_generation = -1

    def update_object(self, run_object: Run) -> None:
        """Takes over an object of which only metadata or status changed."""
        self.run_object = run_object

    def cancel(self) -> None:
        """Marks a Run whose object is deleted while it has leases or a promise."""
        self.cancelled = True

    def set_tree(self, tree: RunKey | None) -> None:
        self.parent = tree

    def set_gang(self, gang: tuple[RunKey, ...]) -> None:
        self.gang = gang

    def change_quotas(self, quotas: tuple[Account, ...]) -> None:
        """Charges what its closed leases used to these quotas instead of the present ones."""
        for account in self.quotas:
            account.closed_usage -= self.usage.closed_charge
        self.quotas = quotas
        for account in quotas:
            account.closed_usage += self.usage.closed_charge

    # Changes of phase, attempt and promise

    def set_waiting(self, *, waiting: bool) -> None:
        """Records whether a Run that has not been queued yet waits for other Runs."""
        self.phase = "Waiting" if waiting else "Pending"

    def enter_phase(self, phase: Phase, at: int) -> None:
        self.phase, self.phase_at = phase, at

    def start(self, at: int, pod_size: int, *, provisional: bool) -> None:
        self.since, self.pod_size, self.provisional = at, pod_size, provisional
        promised_at = None if self.promise is None or provisional else self.promise.at
        self.promised_start = None if promised_at is None else max(at, promised_at)

    def requeue(self, *, lost_lottery: bool, by_fault: bool) -> None:
        """Records that all its leases end; with a promise it is reserved again."""
        self.since, self.pod_size, self.provisional, self.promised_start = None, 0, False, None
        self.not_drawn_at = None
        self.refusals = tuple(refusal.without_pods() for refusal in self.refusals)
        self.lotteries_lost += lost_lottery
        self.times_stopped += not by_fault
        if self.promise is not None:
            self.phase = "Reserved"

    def resume(self, pod_size: int) -> None:
        """Records from its leases that it runs, whatever its status says; keeps a pod size that is known."""
        self.phase = "Running"
        self.attempt = max(self.attempt, 1)
        if self.since is None:
            self.since = min(lease.start for lease in self.leases.values())
        self.changed_at = max(self.changed_at, self.since)
        self.pod_size = self.pod_size or pod_size

    def begin_attempt(self, action: Action) -> None:
        """Counts the attempt that an action begins, if it begins one, and sets when its pods may start."""
        if action.kind not in NEW_ATTEMPT_KINDS:
            return
        keeps_pods = self.shape is not None and self.shape.rendezvous
        if action.kind in ("Start", "Restart") or (not keeps_pods and action.at > self.changed_at):
            self.attempt += 1
            self.restarts += action.counts_as_restart
            delay = restart_delay(self.restarts) if action.counts_as_restart else 0
            self.resume_at = action.at + delay
        self.changed_at = action.at

    def confirm(self, at: int) -> None:
        """Records that interim work gets at that instant what it was promised."""
        self.provisional, self.promised_start = False, at

    def set_refusals(self, refusals: tuple[Refusal, ...], now: int) -> None:
        """Records what refuses its pods, and what follows until a pause is over (N3)."""
        self.refusals = refusals
        self.update_pauses(now)

    def update_pauses(self, now: int) -> None:
        """Records which nodes it avoids now, and whether it, or its growth, waits."""
        paused = [refusal for refusal in self.refusals if refusal.is_paused(now)]
        self.avoided_nodes = tuple(refusal.node for refusal in paused if refusal.node)
        self.refused_everywhere = any(not (refusal.node or refusal.spares_only) for refusal in paused)
        self.growth_paused = any(not refusal.node for refusal in paused)

    def keep_in_lottery(self, at: int) -> None:
        """Records that it had a ticket in a lottery at that instant and did not lose (R4)."""
        self.not_drawn_at = at

    def end_provisional(self) -> None:
        self.provisional = False

    def record_outcome(self, kind: Literal["Complete", "Fail"], at: int) -> None:
        """Records how and when all ranks ended; the next plan ends the Run."""
        self.outcome = (kind, at)

    def set_promise(self, promise: Promise | None) -> None:
        self.promise = promise
        if promise is not None:
            self.raise_reservations_made(promise.number)

    def mark_reserved(self) -> None:
        """Records that a pending Run has a promise."""
        if self.phase == "Pending":
            self.phase = "Reserved"

    def raise_reservations_made(self, number: int) -> None:
        """Records that this number of a Reservation is used, perhaps by an earlier Run of this name."""
        self.reservations_made = max(self.reservations_made, number)

    def count_decision(self) -> None:
        self.revision += 1

    def save_state(self) -> SavedRunState:
        """Returns everything that an action may change about the Run itself."""
        return _saved_values(self)

    def restore_state(self, saved: SavedRunState) -> Promise | None:
        """Restores the saved state, and returns the saved promise, which its index has to set."""
        promise: Promise | None
        promise, *values = saved
        for name, value in zip(SAVED_FIELDS, values, strict=True):
            setattr(self, name, value)
        return promise

    # Changes of leases and usage

    def next_lease_number(self) -> int:
        self.leases_opened += 1
        return self.leases_opened

    def undo_lease_number(self) -> None:
        """The inverse of next_lease_number."""
        self.leases_opened -= 1

    def raise_leases_opened(self, number: int) -> None:
        """Records that this number of a lease is used."""
        self.leases_opened = max(self.leases_opened, number)

    def add_lease(self, lease: GpuLease) -> None:
        self.leases[lease.name] = lease
        self._count_lease(lease, 1)

    def remove_lease(self, lease: GpuLease) -> None:
        """The inverse of add_lease."""
        del self.leases[lease.name]
        self._count_lease(lease, -1)

    def _count_lease(self, lease: GpuLease, sign: int) -> None:
        gpus = sign * lease.gpus
        self.usage.of(lease).open(lease.gpus, lease.start, sign)
        if lease.role != "Spare":
            self.width += gpus
        if lease.role == "Opportunistic":
            self.opportunistic_gpus += gpus
        elif lease.class_ == "Borrowed":
            self.borrowed_gpus += gpus

    def add_closed_usage(self, lease: GpuLease, span_ms: int, charge: int) -> None:
        """Adds what a closed lease used, to its quotas too; a negative span and charge take it back."""
        self.usage.add_closed(lease, span_ms, charge)
        if charge:
            for account in self.quotas:
                account.closed_usage += charge

    # Changes of ranks

    def assign_ranks(self, rank_slots: RankSlots) -> None:
        self.rank_slots = rank_slots

    def add_rank_loss(self, loss: RankLoss) -> None:
        self.rank_losses.append(loss)

    def clear_rank_losses(self) -> None:
        self.rank_losses.clear()

    def add_evicted_spare_node(self, node: str) -> None:
        self.evicted_spare_nodes[node] = None

    def clear_evicted_spare_nodes(self) -> None:
        self.evicted_spare_nodes.clear()

    # What the queue and the indexes record about it

    def enter_queue(self) -> None:
        self.queued = True

    def leave_queue(self) -> None:
        self.queued = False

    def record_verdict(self, verdict: Verdict | None) -> None:
        self.verdict = verdict

    def record_considered(self, queue_generation: int, date_generation: DateSearchGeneration | None) -> None:
        """Records up to which events a pass has considered it."""
        self.queue_checked_generation = queue_generation
        self.date_search_generation = date_generation

    def record_interim_until(self, until: int | None) -> None:
        self.recorded_interim_until = until

    def set_payable_at(self, at: int | None) -> None:
        self.payable_at = at

    # Derived values

    @staticmethod
    def _reported_phase(run_object: Run) -> Phase:
        """Returns the phase before leases are read: only they show that a Run with GPUs is running."""
        phase = run_object.status.phase
        if phase in ("Completed", "Failed") or (phase == "Running" and is_cpu_only(run_object)):
            return phase
        return "Waiting" if phase in (None, "Waiting") else "Pending"

    @property
    def owner(self) -> str:
        return self.run_object.spec.owner

    @property
    def is_tree(self) -> bool:
        return bool(self.run_object.spec.stages)

    @property
    def cpu_only(self) -> bool:
        """Whether this is a stage without GPUs: it has no lease and no payer (J5)."""
        return is_cpu_only(self.run_object)

    @property
    def flavor(self) -> str:
        return self.shape.flavor if self.shape else ""

    @property
    def sponsors(self) -> tuple[str, ...]:
        """The sponsors that may be asked to lend; none if borrowing is not allowed."""
        return self.shape.sponsors if self.shape and self.shape.allow_borrow else ()

    @property
    def waiting(self) -> bool:
        return (
            self.phase in ("Pending", "Reserved")
            and self.shape is not None
            and not self.cancelled
            and not self.refused_everywhere
        )

    def precedence_at(self, now: int) -> Precedence | None:
        """Returns the precedence of a promise that is due: only earlier ones hold against the Run (R5).

        None: the promise is not due or has no date, so all promises hold against the Run.
        """
        promise = self.promise
        if promise is None or promise.at is None or promise.at > now:
            return None
        return promise.precedence

    @property
    def provisional_since(self) -> int | None:
        """When a provisional Run started; None if it is not provisional."""
        return self.since if self.provisional else None

    def is_provisional_to(self, precedence: Precedence) -> bool:
        """Whether this Run is provisional and a promise of that precedence was made before its start (R6)."""
        since = self.provisional_since
        return since is not None and precedence[0] <= since

    @property
    def interim_until(self) -> int | None:
        """When a Run that runs before its date gets what it is promised: the date of its promise (R6, R7)."""
        at = self.promise.at if self.promise is not None else None
        if self.since is None or at is None:
            return None
        return at if self.since < at or self.provisional or self.opportunistic_gpus else None

    @property
    def _has_shared_leases(self) -> bool:
        return any(lease.class_ == "Shared" for lease in self.leases.values())

    @property
    def keeps_date(self) -> bool:
        """Whether it runs, paid and not provisionally, and its promise is not due yet (R7)."""
        running = self.phase == "Running" and self.promise is not None
        return running and not self.provisional and not self.opportunistic_gpus

    @property
    def recallable_from(self) -> int | None:
        """From when the family may recall what it pays for a start; None if it may at any time.

        A Run that had a Reservation is safe for a second after its start, or after its promised start.
        """
        start = self.promised_start
        if start is None and self.reservations_made and self.promise is None:
            start = self.since
        return start + SECOND if start is not None and self._has_shared_leases else None

    def is_recallable_at(self, at: int) -> bool:
        """Whether what its family pays for it can be recalled at that instant (C11)."""
        until = self.recallable_from
        return until is None or not until - SECOND <= at < until

    @property
    def reclaimable_from(self) -> int | None:
        """From when a promised start that lost its payers, or may lose them, is reclaimable; None: always."""
        if self.promised_start is None or not (self.opportunistic_gpus or self._has_shared_leases):
            return None
        return self.promised_start + PROTECTION_MS

    def is_reclaimable_at(self, at: int) -> bool:
        """Whether its opportunistic work may end for a funded start: not soon after a promised start (R5)."""
        until = self.reclaimable_from
        return until is None or not until - PROTECTION_MS <= at < until

    @property
    def waits_for_funding(self) -> bool:
        """Whether its promise has no date but funding: it starts when its payers have enough budget (C12)."""
        return self.promise is not None and self.promise.at is None and bool(self.promise.funding)

    @property
    def is_partly_opportunistic(self) -> bool:
        """Whether some but not all of its GPUs are opportunistic; the others may end with them (C13)."""
        return (
            bool(self.opportunistic_gpus)
            and sum(lease.gpus for lease in self.leases.values()) > self.opportunistic_gpus
        )

    @property
    def wants_growth(self) -> bool:
        """Whether it runs, is funded, and lacks GPUs or spares (E1, P5) that nobody refuses now (N3)."""
        shape = self.shape
        if (
            shape is None
            or self.phase != "Running"
            or self.cancelled
            or self.opportunistic_gpus
            or self.provisional
            or self.growth_paused
        ):
            return False
        return (shape.may_grow and self.width < shape.desired) or bool(self.missing_spares())

    @property
    def is_reported_stalled(self) -> bool:
        """Whether its verdict says why it cannot grow."""
        verdict = self.verdict
        return verdict is not None and bool(verdict.causes) and verdict.causes[0].reason is Reason.NOT_GROWING

    @property
    def growth_signature(self) -> tuple[object, ...] | None:
        """Everything that decides whether a stalled Run can take a step; None: it is checked by itself."""
        shape = self.shape
        if shape is None or shape.spares or self.avoided_nodes or not self.is_reported_stalled:
            return None
        pod = (self.pod_size, shape.tolerations, shape.node_selector, shape.requirements)
        terms = (self.sponsors, bool(self.quotas), shape.max_duration is not None, self.promise is not None)
        return (self.owner, shape.step, shape.group, *pod, *terms)

    def missing_spares(self) -> dict[int, int]:
        """Returns the number of spare pods that each group lacks."""
        if self.shape is None or not self.shape.spares or not self.pod_size:
            return {}
        lacking: dict[int, int] = {}
        for lease in self.leases.values():
            pods = lease.gpus // self.pod_size if lease.role == "Spare" else 0
            lacking[lease.group] = lacking.get(lease.group, self.shape.spares) - pods
        return {group: pods for group, pods in sorted(lacking.items()) if pods > 0}

    @property
    def known_end(self) -> int | None:
        """The instant by which it is certain to end (F7); None without a ``maxDuration`` or a start."""
        limit = self.max_duration
        return None if self.since is None or limit is None else self.since + limit

    def certain_end(self, at: int) -> int:
        """Returns the known end of a Run that runs, or would start at that instant; FOREVER if unlimited."""
        limit = self.max_duration
        return FOREVER if limit is None else (at if self.since is None else self.since) + limit

    @property
    def max_duration(self) -> int | None:
        if self.shape is not None:
            return self.shape.max_duration
        declared = self.run_object.spec.runtime.max_duration
        return parse_duration(declared) if declared else None

    @property
    def checkpoint_ms(self) -> int | None:
        """How often the work of the Run saves its state; None if it never does."""
        return self.shape.checkpoint if self.shape else None


def refusals_in_status(status: RunStatus) -> tuple[Refusal, ...]:
    """Returns the refusals of a Run as they were last written."""
    return tuple(
        Refusal(
            node=written.node or "",
            message=written.message,
            since=parse_time(written.since),
            deadline=parse_time(written.deadline),
            until=parse_time(written.until) if written.until else None,
            times=written.times,
            spares_only=written.spares_only,
        )
        for written in status.refusals
    )


def restart_delay(restarts: int) -> int:
    """Returns how long pods wait before they start again, in milliseconds, after so many failures."""
    return min(MIN_RESTART_DELAY << min(restarts - 1, 16), MAX_RESTART_DELAY) if restarts else 0


def is_cpu_only(run_object: Run) -> bool:
    resources = run_object.spec.resources
    return resources is not None and not resources.total_gpus
