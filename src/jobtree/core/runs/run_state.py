"""A Run as the world holds it."""

from operator import attrgetter
from typing import Any, Literal

import msgspec

from jobtree.api.kinds.lease import LeaseClass
from jobtree.api.kinds.run import Phase, Run
from jobtree.api.schema.quantities import SECOND, parse_duration, parse_time
from jobtree.core.accounts.envelope_accounts import FOREVER, Account, ClassUsage
from jobtree.core.model.gang_shape import GangShape, gang_shape
from jobtree.core.model.gpu_lease import EnvelopeKey, GpuLease, RunKey
from jobtree.core.model.promise import CreationOrder, Precedence, Promise
from jobtree.core.model.reasons import Reason, Verdict

FINISHED = frozenset({"Completed", "Failed"})

PodSlots = tuple[str, int]  # its node, and the mask of its slots there
GroupRank = tuple[int, int]  # a group, and a place in it
RankSlots = dict[GroupRank, PodSlots]


class RankLoss(msgspec.Struct, frozen=True, order=True):
    """A pod of one attempt failed, or somebody evicted or deleted it."""

    at: int
    seat: GroupRank
    attempt: int
    failed: bool
    message: str = ""


DateSearchGeneration = tuple[int, int]  # counts of events, see hopes
SavedRunState = tuple[Any, ...]  # values of SAVED_FIELDS

SAVED_FIELDS = (
    "phase",
    "phase_at",
    "since",
    "pod_size",
    "attempt",
    "changed_at",
    "restarts",
    "resume_at",
    "leases_opened",
    "lotteries_lost",
    "provisional",
    "promise",
    "reservations_made",
)
_progress = attrgetter(*SAVED_FIELDS)


class RunState:
    """The Run's shape, what it holds, and where it stands in the queue."""

    __slots__ = (
        "archived_leases",
        "attempt",
        "borrowed_gpus",
        "cancelled",
        "carried",
        "carried_charge",
        "carried_spare",
        "changed_at",
        "closed_charge",
        "created",
        "creation_order",
        "date_search_generation",
        "evicted_spare_nodes",
        "funding",
        "gang",
        "key",
        "leases",
        "leases_opened",
        "lotteries_lost",
        "opportunistic_gpus",
        "outcome",
        "parent",
        "payable_at",
        "phase",
        "phase_at",
        "pod_size",
        "promise",
        "provisional",
        "queue_checked_generation",
        "queued",
        "quotas",
        "rank_losses",
        "rank_slots",
        "recorded_interim_until",
        "reservations_made",
        "restarts",
        "resume_at",
        "revision",
        "run_object",
        "shape",
        "since",
        "uid",
        "verdict",
        "width",
    )

    def __init__(self, run_object: Run, now: int) -> None:
        meta, status = run_object.metadata, run_object.status
        self.key: RunKey = (meta.namespace, meta.name)
        self.uid = meta.uid
        self.created = parse_time(meta.creation_timestamp) if meta.creation_timestamp else now
        self.creation_order: CreationOrder = (self.created, *self.key)
        self.leases: dict[str, GpuLease] = {}
        self.funding: dict[tuple[LeaseClass, EnvelopeKey], ClassUsage] = {}
        self.quotas: tuple[Account, ...] = ()
        self.closed_charge = 0  # charge × time of its closed leases
        self.carried: dict[tuple[LeaseClass, EnvelopeKey], int] = {}  # GPUs × time of archived ones
        self.carried_charge = 0  # the part of what is spent that those are
        self.carried_spare = 0  # the part of them that stood by
        self.archived_leases: dict[str, None] = {}  # archived leases that are not gone yet
        self.width = self.opportunistic_gpus = self.borrowed_gpus = 0
        self.parent: RunKey | None = None  # the tree whose stage it is
        self.gang: tuple[RunKey, ...] = ()  # stages that start together with it, itself among them
        self.phase: Phase = self._reported_phase(run_object)
        self.phase_at = self.created  # when it came into this phase
        for condition in status.conditions:
            if condition.type in ("Admitted", "Finished") and condition.last_transition_time:
                self.phase_at = max(self.phase_at, parse_time(condition.last_transition_time))
        allocation = status.allocation
        self.since = parse_time(allocation.since) if allocation else None
        self.pod_size = allocation.gpus_per_pod if allocation else 0
        self.revision = status.revision  # how many decisions there were about it
        self.attempt = status.attempt
        self.changed_at = parse_time(status.changed_at) if status.changed_at else self.since or 0
        self.restarts = status.restarts
        self.resume_at = parse_time(status.resume_at) if status.resume_at else 0
        self.rank_slots: RankSlots = {}
        self.rank_losses: list[RankLoss] = []
        self.evicted_spare_nodes: dict[str, None] = {}  # nodes from which somebody evicted its standby pods
        self.leases_opened = status.leases_opened
        self.lotteries_lost = status.lotteries_lost
        self.provisional = status.provisional  # stands in promised slots, and goes first when they are due
        self.promise: Promise | None = None
        self.recorded_interim_until: int | None = None  # as it was last noted where it holds leases
        self.reservations_made = status.reservations_made
        self.outcome: tuple[Literal["Complete", "Fail"], int] | None = None
        self.verdict: Verdict | None = None
        self.queued = False
        self.date_search_generation: DateSearchGeneration | None = None  # when it was last looked for a date
        self.payable_at: int | None = None  # when time alone may make its unpaid GPUs payable
        self.apply_edit(run_object)

    @staticmethod
    def _reported_phase(run_object: Run) -> Phase:
        """What the status says and leases do not: that it is finished, waits for others, or needs no GPUs."""
        phase = run_object.status.phase
        if phase in ("Completed", "Failed") or (phase == "Running" and is_cpu_only(run_object)):
            return phase
        return "Waiting" if phase in (None, "Waiting") else "Pending"

    def apply_edit(self, run_object: Run) -> None:
        """The Run was edited: plan it again."""
        self.run_object = run_object
        self.shape: GangShape | None = gang_shape(run_object.spec)
        self.cancelled = run_object.metadata.deletion_timestamp is not None
        self.queue_checked_generation = -1

    @property
    def owner(self) -> str:
        return self.run_object.spec.owner

    @property
    def is_tree(self) -> bool:
        return bool(self.run_object.spec.stages)

    @property
    def cpu_only(self) -> bool:
        """A stage without GPUs: no lease, no payer, placed by the cluster's own scheduler (J5)."""
        return is_cpu_only(self.run_object)

    @property
    def flavor(self) -> str:
        return self.shape.flavor if self.shape else ""

    @property
    def sponsors(self) -> tuple[str, ...]:
        """Who may be asked to lend: the sponsors, where borrowing is allowed."""
        return self.shape.sponsors if self.shape and self.shape.allow_borrow else ()

    @property
    def waiting(self) -> bool:
        return self.phase in ("Pending", "Reserved") and self.shape is not None and not self.cancelled

    def precedence_at(self, now: int) -> Precedence | None:
        """Whose promises hold against this Run: those made before its own, once that is due (R5).

        Before that, and without a date, all of them do (None).
        """
        promise = self.promise
        if promise is None or promise.at is None or promise.at > now:
            return None
        return promise.precedence

    @property
    def provisional_since(self) -> int | None:
        """When it began, if it is provisional."""
        return self.since if self.provisional else None

    def is_provisional_to(self, precedence: Precedence) -> bool:
        """Whether this Run is provisional and a promise of that rank was made before it started (R6)."""
        since = self.provisional_since
        return since is not None and precedence[0] <= since

    @property
    def interim_until(self) -> int | None:
        """When it has what it is promised in place of what it holds on sufferance, or goes (R6)."""
        suffered = self.since is not None and (self.provisional or bool(self.opportunistic_gpus))
        return self.promise.at if suffered and self.promise is not None else None

    @property
    def protected_until(self) -> int | None:
        """Until when it has what it was promised, if it has started so with money of its family.

        That long its start holds against the owner's Runs (R5). Then the money is lent as any other (C11).
        """
        shared = any(lease.class_ == "Shared" for lease in self.leases.values())
        if self.since is None or not self.reservations_made or self.promise is not None or not shared:
            return None
        return self.since + SECOND

    def is_recallable_at(self, at: int) -> bool:
        """Whether its family's money can be recalled from it at that instant."""
        until = self.protected_until
        return until is None or at >= until

    @property
    def waits_for_funding(self) -> bool:
        """Promised a start as soon as the money kept for it suffices, whenever that is (C12)."""
        return self.promise is not None and self.promise.at is None and bool(self.promise.funding)

    @property
    def is_partly_opportunistic(self) -> bool:
        """Whether it holds unpaid GPUs and others too, which go with them (C13)."""
        return (
            bool(self.opportunistic_gpus)
            and sum(lease.gpus for lease in self.leases.values()) > self.opportunistic_gpus
        )

    @property
    def wants_growth(self) -> bool:
        """Whether it runs, is paid for, and lacks GPUs or spares that it wants (E1, P5)."""
        shape = self.shape
        if (
            shape is None
            or self.phase != "Running"
            or self.cancelled
            or self.opportunistic_gpus
            or self.provisional
        ):
            return False
        return (shape.may_grow and self.width < shape.desired) or bool(self.missing_spares())

    @property
    def is_reported_stalled(self) -> bool:
        """Whether it was told why it cannot grow."""
        verdict = self.verdict
        return verdict is not None and bool(verdict.causes) and verdict.causes[0].reason is Reason.NOT_GROWING

    @property
    def growth_signature(self) -> tuple[object, ...] | None:
        """All that decides whether it can take a step, if it was told that it cannot; None: ask it apart."""
        shape = self.shape
        if shape is None or shape.spares or not self.is_reported_stalled:
            return None
        pod = (self.pod_size, shape.cpu_milli, shape.memory_bytes, shape.tolerations, shape.node_selector)
        terms = (self.sponsors, bool(self.quotas), shape.max_duration is not None, self.promise is not None)
        return (self.owner, shape.step, shape.group, *pod, *terms)

    def missing_spares(self) -> dict[int, int]:
        """Standby pods that each group lacks."""
        if self.shape is None or not self.shape.spares or not self.pod_size:
            return {}
        lacking: dict[int, int] = {}
        for lease in self.leases.values():
            pods = lease.gpus // self.pod_size if lease.role == "Spare" else 0
            lacking[lease.group] = lacking.get(lease.group, self.shape.spares) - pods
        return {group: pods for group, pods in sorted(lacking.items()) if pods > 0}

    @property
    def known_end(self) -> int | None:
        """The instant by which it is certain to end (F7)."""
        limit = self.max_duration
        return None if self.since is None or limit is None else self.since + limit

    def certain_end(self, at: int) -> int:
        """The same, of a Run that runs or would start now."""
        limit = self.max_duration
        return FOREVER if limit is None else (at if self.since is None else self.since) + limit

    @property
    def max_duration(self) -> int | None:
        if self.shape is not None:
            return self.shape.max_duration
        declared = self.run_object.spec.runtime.max_duration
        return parse_duration(declared) if declared else None

    def save_state(self) -> SavedRunState:
        """Everything that an action may change about the Run itself."""
        return _progress(self)

    def restore_state(self, saved: SavedRunState) -> None:
        for name, value in zip(SAVED_FIELDS, saved, strict=True):
            setattr(self, name, value)


def is_cpu_only(run_object: Run) -> bool:
    resources = run_object.spec.resources
    return resources is not None and not resources.total_gpus
