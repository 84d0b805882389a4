"""Keeps running totals of charge and usage for envelopes, caps, lending limits and quotas.

All figures are integers: charge in thousandths of a GPU, usage in thousandths of a GPU times milliseconds.
Between changes usage is linear in time: usage at t = closed usage + charge·t − Σ charge·start. So usage is
read at any instant without replaying leases.
A declared Run (``maxDuration``) commits what it has not used yet: Σ charge·end − charge·t (C5).
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from jobtree.api.kinds.budget import AggregateCap, Envelope
from jobtree.api.schema.quantities import HOUR, MILLI, parse_time
from jobtree.core.model.gpu_lease import EnvelopeKey, GpuLease, RunKey
from jobtree.core.model.promise import CreationOrder, Precedence, Promise
from jobtree.core.model.versioned_cache import SavedVersions, Version

FOREVER = 1 << 60
GPU_HOUR = MILLI * HOUR


class Account:
    """The running totals of one limit. A limit of None does not bind."""

    __slots__ = (
        "charge",
        "charge_start",
        "closed_usage",
        "declared",
        "declared_end",
        "label",
        "max_charge",
        "max_use",
        "opened",
    )

    def __init__(self, label: str, max_gpus: int | None, max_gpu_hours: int | None) -> None:
        self.label = label
        self.set_limits(max_gpus, max_gpu_hours)
        self.closed_usage = 0  # usage of closed leases
        self.charge = 0  # of open leases
        self.charge_start = 0  # Σ charge·start of open leases
        self.declared = 0  # charge of open leases with a known end
        self.declared_end = 0  # Σ charge·end of those
        self.opened: dict[int, int] = {}  # charge of open-ended leases by start, when they commit an hour

    def set_limits(self, max_gpus: int | None, max_gpu_hours: int | None) -> None:
        self.max_charge = FOREVER if max_gpus is None else max_gpus * MILLI
        self.max_use = None if max_gpu_hours is None else max_gpu_hours * GPU_HOUR

    def open(self, charge: int, start: int, end: int | None, sign: int = 1, *, goes_on: bool = False) -> None:
        """Counts a lease that opens; with sign −1, undoes that. ``end`` is its known end.

        A lease that goes on with the rest of another one commits no further hour.
        """
        charge *= sign
        self.charge += charge
        self.charge_start += charge * start
        if end is not None:
            self.declared += charge
            self.declared_end += charge * end
        elif not goes_on:
            opened = self.opened.pop(start, 0) + charge
            if opened:
                self.opened[start] = opened

    def close(self, charge: int, start: int, end: int | None, at: int, sign: int = 1) -> None:
        """Counts a lease that closes at that instant; with sign −1, undoes that."""
        self.open(charge, start, end, -sign)
        self.closed_usage += sign * charge * (at - start)

    def used(self, at: int) -> int:
        return self.closed_usage + self.charge * at - self.charge_start

    def committed(self, at: int) -> int:
        """Returns what declared Runs have not used yet, plus an hour of open-ended leases that open now."""
        return self.declared_end - self.declared * at + self.opened.get(at, 0) * HOUR

    def free_charge(self) -> int:
        return self.max_charge - self.charge

    def free_use(self, at: int) -> int | None:
        return None if self.max_use is None else self.max_use - self.used(at) - self.committed(at)

    @property
    def open_ended(self) -> int:
        """The charge of open-ended leases."""
        return self.charge - self.declared

    def exhausted_at(self) -> int | None:
        """Returns when open-ended leases have used all that declared ones leave (C5); None: never."""
        flow = self.open_ended
        if self.max_use is None or flow <= 0:
            return None
        return (self.max_use - self.closed_usage + self.charge_start - self.declared_end) // flow


class ClassUsage:
    """GPUs and GPU-hours of one class of lease, for reports."""

    __slots__ = ("amount", "amount_start", "closed_usage")

    def __init__(self) -> None:
        self.amount = 0
        self.amount_start = 0
        self.closed_usage = 0

    def open(self, amount: int, start: int, sign: int = 1) -> None:
        self.amount += sign * amount
        self.amount_start += sign * amount * start

    def close(self, amount: int, start: int, at: int, sign: int = 1) -> None:
        self.open(amount, start, -sign)
        self.closed_usage += sign * amount * (at - start)

    def used(self, at: int) -> int:
        return self.closed_usage + self.amount * at - self.amount_start


CLASSES = ("owned", "shared", "borrowed", "spare", "opportunistic")


def usage_class(lease: GpuLease) -> str:
    """Returns the class under which a lease is reported; spares have a class of their own."""
    return "spare" if lease.role == "Spare" else lease.class_.lower()


def reported_amount(lease: GpuLease) -> int:
    """Returns the charge; for an opportunistic lease, which counts against no limit, its GPUs × 1000."""
    return lease.gpus * MILLI if lease.role == "Opportunistic" else lease.charge


class CapState:
    """An aggregate cap: a limit over several envelopes of one budget."""

    __slots__ = ("account", "envelopes", "max_credits", "spec")

    def __init__(self, budget: str, spec: AggregateCap) -> None:
        self.spec = spec
        self.account = Account(f"{budget}/{spec.name}", spec.max_concurrency, spec.max_gpu_hours)
        self.max_credits = None if spec.max_credits is None else spec.max_credits * GPU_HOUR * MILLI
        self.envelopes: list[EnvelopeState] = []


class ProvisionalCharge(NamedTuple):
    """The charge of a provisional lease, which ends for promises made before it began (R6)."""

    since: int
    known_end: int | None
    charge: int


class InterimCharge(NamedTuple):
    """The charge of an interim lease, which ends when the promise of its Run is due."""

    at: int
    known_end: int | None
    charge: int

    def unused_by(self, by: int) -> int:
        """Returns the usage that is counted by that instant but falls after the interim end."""
        until = by if self.known_end is None else self.known_end
        return self.charge * (until - self.at) if self.at <= by else 0


Charge = TypeVar("Charge", InterimCharge, ProvisionalCharge)


Turn = tuple[bool, CreationOrder]
"""A place in line for what returns to an envelope: whether the Run is of another owner, and its creation."""


class ReservedCharge(NamedTuple):
    """The charge of a dated promise on an envelope, from its date to its end."""

    precedence: Precedence
    at: int
    end: int
    charge: int
    promise: Promise


class EnvelopeState:
    """An envelope with its accounts, the caps above it and the leases that it pays for."""

    __slots__ = (
        "_undated_turns",
        "account",
        "amended_at",
        "by_class",
        "caps",
        "carried",
        "dated_reservations",
        "end",
        "interim_charges",
        "key",
        "known_ends",
        "leases",
        "lending_account",
        "max_credits",
        "owner",
        "price",
        "promises",
        "provisional_charges",
        "reconsider_generation",
        "reserved_version",
        "retired_at",
        "returns_version",
        "selector",
        "spec",
        "start",
        "undated_promises",
    )

    def __init__(self, budget: str, owner: str, spec: Envelope, price: int) -> None:
        self.key: EnvelopeKey = (budget, spec.name)
        self.account = Account(f"{budget}/{spec.name}", None, None)
        self.lending_account = Account(f"{budget}/{spec.name} lending", None, None)
        self.by_class = {name: ClassUsage() for name in CLASSES}
        self.carried = dict.fromkeys((*CLASSES, "lent"), 0)  # the part of the usage whose leases are archived
        self.leases: dict[str, GpuLease] = {}  # open and funded
        self.known_ends: list[tuple[int, int]] = []  # known ends of leases, and their charge, in order
        self.interim_charges: dict[str, InterimCharge] = {}  # by name of the lease
        self.provisional_charges: dict[str, ProvisionalCharge] = {}  # by name of the lease
        self.promises: dict[RunKey, Promise] = {}  # that it will pay for
        self.dated_reservations: list[ReservedCharge] = []  # of promises with a date, by precedence
        self.undated_promises: list[tuple[Turn, RunKey]] = []  # promises without a date, in line
        self._undated_turns: dict[RunKey, Turn] = {}
        self.reserved_version = Version()  # replaced when a promise or a return changes
        self.returns_version = Version()  # replaced when the charge that returns, or its time, changes
        self.reconsider_generation = 0  # counts returns to it and to envelopes that share a cap with it
        self.apply_edit(owner, spec, price, 0)

    def apply_edit(self, owner: str, spec: Envelope, price: int, now: int) -> None:
        """Applies an edit of the Budget: new limits for the same totals."""
        self.amended_at = now
        self.owner = owner
        self.invalidate_reserved()
        self.spec = spec
        self.price = price
        self.retired_at: int | None = None
        self.selector = tuple(sorted((k, v) for k, v in spec.selector.items() if v != "*"))
        self.start = parse_time(spec.start) if spec.start else -FOREVER
        self.end = parse_time(spec.end) if spec.end else FOREVER
        self.account.set_limits(spec.concurrency, spec.max_gpu_hours)
        self.max_credits = None if spec.max_credits is None else spec.max_credits * GPU_HOUR * MILLI
        lending = spec.lending
        self.lending_account.set_limits(
            lending.max_concurrency if lending else None, lending.max_gpu_hours if lending else None
        )
        self.caps: list[CapState] = []

    @property
    def label(self) -> str:
        return f"{self.key[0]}/{self.key[1]}"

    @property
    def has_other_limits(self) -> bool:
        """Whether anything besides its own concurrency and hours limits the envelope."""
        return self.max_credits is not None or bool(self.caps) or bool(self.promises)

    @property
    def limited_by_concurrency_only(self) -> bool:
        """Whether the envelope has no limit of hours or credits and no cap."""
        return self.account.max_use is None and self.max_credits is None and not self.caps

    @property
    def exhaustible_limits(self) -> "list[tuple[Account, int | None, list[EnvelopeState]]]":
        """Its own limits of hours and credits and those of its caps, each with the envelopes under it."""
        caps = [(cap.account, cap.max_credits, cap.envelopes) for cap in self.caps]
        return [(self.account, self.max_credits, [self]), *caps]

    @property
    def sharing_a_cap(self) -> "list[EnvelopeState]":
        """The envelope itself and all that share a cap with it."""
        return [self, *(other for cap in self.caps for other in cap.envelopes if other is not self)]

    def open_at(self, at: int) -> bool:
        return self.retired_at is None and self.start <= at < self.end

    def lends_to(self, owner: str) -> bool:
        lending = self.spec.lending
        return (
            lending is not None
            and lending.allow
            and any(lending_entry_matches(to, owner) for to in lending.to)
        )

    def invalidate_reserved(self) -> None:
        """Invalidates the answers that depend on promises or on what returns to the envelope."""
        self.reserved_version = Version()

    def _invalidate_returns(self) -> None:
        self.returns_version = Version()
        self.invalidate_reserved()

    def dated_after(self, instant: int) -> "list[ReservedCharge]":
        """Returns the reservations of dated promises that were made after that instant."""
        return self.dated_reservations[
            bisect_right(self.dated_reservations, instant, key=lambda claim: claim.precedence[0]) :
        ]

    def turn(self, owner: str, creation_order: CreationOrder) -> Turn:
        """Returns the place in line of a Run of that owner: the envelope's owner comes first (C12)."""
        return (owner != self.owner, creation_order)

    def charge_of(self, promise: Promise) -> int:
        """Returns the charge of a promise on this envelope."""
        return sum(gpus for key, gpus in promise.funding if key == self.key) * MILLI

    def add_promise(self, promise: Promise, owner: str) -> None:
        """Adds a promise to a Run of that owner that the envelope will pay for, in place of any other."""
        self.remove_promise(promise.run_key)
        self.promises[promise.run_key] = promise
        if promise.at is None:
            self._undated_turns[promise.run_key] = turn = self.turn(owner, promise.creation_order)
            insort(self.undated_promises, (turn, promise.run_key))
        else:
            end = FOREVER if promise.end is None else promise.end
            insort(
                self.dated_reservations,
                ReservedCharge(promise.precedence, promise.at, end, self.charge_of(promise), promise),
            )

    def remove_promise(self, run_key: RunKey) -> None:
        self.invalidate_reserved()
        promise = self.promises.pop(run_key, None)
        if promise is not None and promise.at is None:
            turn = self._undated_turns.pop(run_key)
            del self.undated_promises[bisect_left(self.undated_promises, (turn, run_key))]
        elif promise is not None:
            del self.dated_reservations[bisect_left(self.dated_reservations, (promise.precedence,))]

    def record_known_end(self, end: int, charge: int, sign: int) -> None:
        """Adds the known end of a lease; with sign −1, removes it."""
        self._invalidate_returns()
        if sign > 0:
            insort(self.known_ends, (end, charge))
        else:
            del self.known_ends[bisect_left(self.known_ends, (end, charge))]

    def record_interim(self, lease: GpuLease, at: int | None, known_end: int | None = None) -> None:
        """Records when an interim lease ends at the latest; None: the lease is not interim."""
        charge = None
        if at is not None and (known_end is None or at < known_end):
            charge = InterimCharge(at, known_end, lease.charge)
        self._record(self.interim_charges, lease.name, charge)

    def record_provisional(self, lease: GpuLease, since: int | None, known_end: int | None = None) -> None:
        """Records since when the Run of a lease is provisional; None: it is not."""
        charge = None if since is None else ProvisionalCharge(since, known_end, lease.charge)
        self._record(self.provisional_charges, lease.name, charge)

    def _record(self, charges: dict[str, Charge], lease: str, charge: Charge | None) -> None:
        """Sets the charge of a lease, or removes it with None; invalidates answers if that is a change."""
        if charge != charges.get(lease):
            self._invalidate_returns()
            if charge is None:
                del charges[lease]
            else:
                charges[lease] = charge

    def save_versions(self) -> SavedVersions:
        """Returns the versions before a change that may be rolled back."""
        return self.reserved_version, self.returns_version

    def restore_versions(self, saved: SavedVersions) -> None:
        """Makes the answers of before a change valid again after it was rolled back."""
        self.reserved_version, self.returns_version = saved

    def count_return(self, sign: int) -> None:
        """Counts that charge returned from a lease or a promise; with sign −1, undoes that."""
        for envelope in self.sharing_a_cap:
            envelope.reconsider_generation += sign

    def accounts(self, lease: GpuLease) -> list[Account]:
        """Returns the accounts of this envelope that a funded lease counts against."""
        accounts = [self.account, self.lending_account] if lease.class_ == "Borrowed" else [self.account]
        if self.caps:
            accounts += [cap.account for cap in self.caps]
        return accounts


def lending_entry_matches(to: str, owner: str) -> bool:
    """Whether an entry of ``lending.to`` names the owner: exactly, by ``prefix:*``, or by ``*``."""
    return to in ("*", owner) or (to.endswith(":*") and owner.startswith(to[:-1]))


def credits_used(envelopes: Iterable[EnvelopeState], at: int) -> int:
    """Returns the credits used and committed at that instant, as usage times price, like ``max_credits``."""
    return sum(
        (envelope.account.used(at) + envelope.account.committed(at)) * envelope.price
        for envelope in envelopes
    )


def unused_interim_usage(envelopes: Iterable[EnvelopeState], by: int, *, priced: bool = False) -> int:
    """Returns the usage, or the credits, counted by then that fall after the ends of interim leases."""
    return sum(
        interim.unused_by(by) * (envelope.price if priced else 1)
        for envelope in envelopes
        for interim in envelope.interim_charges.values()
    )


def credits_exhausted_at(envelopes: Iterable[EnvelopeState], limit: int) -> int | None:
    """Returns when open-ended leases of these envelopes have used the credits; None: never."""
    flow = fixed = 0
    for envelope in envelopes:
        account = envelope.account
        flow += account.open_ended * envelope.price
        fixed += (account.closed_usage - account.charge_start + account.declared_end) * envelope.price
    return None if flow <= 0 else (limit - fixed) // flow
