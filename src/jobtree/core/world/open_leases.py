"""Holdings: every open lease, and what was posted for it.

An open lease occupies slots, counts against the limits of its payer and of the trees above its Run, and makes
up the Run's width. What was posted is kept with it, so that closing undoes exactly that, whatever has changed
since. ``unopen`` is the exact inverse of ``open``, ``reopen`` of ``close``: a trial needs no copy of the
world. A closed lease leaves nothing behind but its sums in the books.

A lease whose Run cannot be read is only charged: its payer pays on, and nobody plans with it.
"""

from collections.abc import Iterable

import msgspec

from jobtree.core.accounts.budget_index import Ledger
from jobtree.core.accounts.envelope_accounts import Account, EnvelopeState, Tally, reported_amount, use_class
from jobtree.core.model.gpu_lease import Lease, RunKey, Slots
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.fleet import Fleet
from jobtree.core.world.run_queue import Line
from jobtree.core.world.timers import Alarms


class Held(msgspec.Struct, frozen=True):
    """An open lease with what was posted for it, so that closing undoes exactly that."""

    lease: Lease
    envelope: EnvelopeState
    run: RunState | None
    known_end: int | None
    cpu_milli: int
    memory_bytes: int
    pod_size: int


class Holdings:
    def __init__(
        self, runs: dict[RunKey, RunState], fleet: Fleet, ledger: Ledger, alarms: Alarms, line: Line
    ) -> None:
        self._runs = runs
        self._fleet = fleet
        self._ledger = ledger
        self._alarms = alarms
        self._line = line
        self.held: dict[str, Held] = {}
        self.charged: dict[str, Held] = {}  # of Runs that cannot be read
        self.by_node: dict[str, dict[str, None]] = {}  # names of open leases
        self._spent: dict[str, int] = {}  # use of closed leases whose Run has not come yet, by its UID

    def open(self, lease: Lease) -> None:
        self._hold(self.holding(lease))

    def unopen(self, name: str) -> None:
        """The inverse of open."""
        self._release(self.held[name])

    def close(self, name: str, at: int) -> Held:
        held = self.held[name]
        self._release(held)
        self.settle_payer(held, at, 1)
        self.settle_run(held, at, 1)
        self._gain_money(held, 1)
        return held

    def reopen(self, held: Held, at: int) -> None:
        """The inverse of close."""
        self._gain_money(held, -1)
        self.settle_payer(held, at, -1)
        self.settle_run(held, at, -1)
        self._hold(held)

    def charge(self, lease: Lease) -> None:
        """Its payer pays for it, and that is all that is known of it."""
        held = self.charged[lease.name] = self.holding(lease)
        bill(held, 1)
        self._alarms.watch_envelope(held.envelope)

    def discharge(self, name: str) -> None:
        """The inverse of charge; of a lease that is not charged, nothing."""
        held = self.charged.pop(name, None)
        if held is not None:
            bill(held, -1)
            self._gain_money(held, 1)

    def repost(self, names: Iterable[str]) -> None:
        """Known ends or limits changed: post these leases anew."""
        for name in names:
            lease = self.held[name].lease
            self.unopen(name)
            self.open(lease)

    def lift(self, budget: str) -> tuple[list[Lease], list[Lease]]:
        """Take the budget's open leases off the books, so that its caps can change under them."""
        leases, charged = (
            [held.lease for held in kept.values() if held.envelope.key[0] == budget]
            for kept in (self.held, self.charged)
        )
        for lease in leases:
            self.unopen(lease.name)
        for lease in charged:
            self.discharge(lease.name)
        return leases, charged

    def lay_back(self, lifted: tuple[list[Lease], list[Lease]]) -> None:
        leases, charged = lifted
        for lease in leases:
            self.open(lease)
        for lease in charged:
            self.charge(lease)

    def occupy_node(self, node: str, sign: int) -> None:
        """A node came anew, or goes: its part of the leases that stand on it."""
        for name in self.by_node.get(node, ()):
            held = self.held[name]
            self._occupy(held, tuple(slot for slot in held.lease.slots if slot[0] == node), sign)

    def run_of(self, lease: Lease) -> RunState | None:
        state = self._runs.get(lease.run)
        return state if state is not None and state.uid == lease.uid else None

    def holding(self, lease: Lease) -> Held:
        """The lease with what is to be posted for it as things stand."""
        state = self.run_of(lease)
        envelope = self._ledger.envelope(lease.payer, lease.payer_owner, lease.flavor)
        shape = state.shape if state else None
        end = state.known_end if state else None
        if end is not None and lease.role != "Opportunistic":  # an unpaid one does not end with a window
            end = max(lease.start, min(end, envelope.end))
        return Held(
            lease=lease,
            envelope=envelope,
            run=state,
            known_end=end,
            cpu_milli=shape.cpu_milli if shape else 0,
            memory_bytes=shape.memory_bytes if shape else 0,
            pod_size=(state.pod_size if state else 0) or 1,
        )

    def _hold(self, held: Held) -> None:
        lease = held.lease
        self.held[lease.name] = held
        self._post(held, 1)
        self._occupy(held, lease.slots, 1)
        for node, _ in lease.slots:
            self.by_node.setdefault(node, {})[lease.name] = None
        if held.run is not None:
            held.run.leases[lease.name] = lease
            self._weigh(held, held.run, 1)
            self.note_lapses(held.run)

    def _release(self, held: Held) -> None:
        lease = held.lease
        del self.held[lease.name]
        self._post(held, -1)
        self._occupy(held, lease.slots, -1)
        for node, _ in lease.slots:
            on_node = self.by_node[node]
            del on_node[lease.name]
            if not on_node:
                del self.by_node[node]
        if held.run is not None:
            del held.run.leases[lease.name]
            self._weigh(held, held.run, -1)
            self.note_lapses(held.run)

    def note_lapses(self, state: RunState) -> None:
        """What the Run holds on sufferance counts until its promise is due."""
        before, at = state.lapsing, state.lapses_at
        if before is None and at is None:
            return
        state.lapsing = at
        if at != before:
            self._fleet.forget_around(state.leases.values())
        for lease in state.leases.values():
            if lease.role != "Opportunistic":
                held = self.held[lease.name]
                held.envelope.note_lapse(lease, at, held.known_end)

    def note_yields(self, state: RunState) -> None:
        """The Run is provisional now, or is not any more."""
        for lease in state.leases.values():
            if lease.role != "Opportunistic":
                self._note_yield(self.held[lease.name])

    @staticmethod
    def _note_yield(held: Held) -> None:
        since = None if held.run is None else held.run.provisional_since
        held.envelope.note_yield(held.lease, since, held.known_end)

    # What is posted

    def _post(self, held: Held, sign: int) -> None:
        lease, envelope = held.lease, held.envelope
        bill(held, sign)
        if lease.role == "Opportunistic":
            return
        if sign > 0:
            envelope.leases[lease.name] = lease
            self._note_yield(held)
        else:
            del envelope.leases[lease.name]
            envelope.note_lapse(lease, None)
            envelope.note_yield(lease, None)
        if held.known_end is not None:
            envelope.note_end(held.known_end, lease.charge, sign)
        if sign > 0:  # a lease less never brings an instant nearer
            self._alarms.watch_envelope(envelope)
            if held.run is not None and held.run.quotas:
                self._alarms.watch_quotas(held.run.quotas)

    def _occupy(self, held: Held, slots: Slots, sign: int) -> None:
        change = self._fleet.occupy if sign > 0 else self._fleet.vacate
        change(slots, held.lease.role, held.cpu_milli, held.memory_bytes, held.pod_size)

    def _weigh(self, held: Held, state: RunState, sign: int) -> None:
        """Keep the Run's width, its unpaid and borrowed GPUs, and who paid how much of it."""
        lease = held.lease
        share(state, lease).open(lease.gpus, lease.start, sign)
        if lease.role != "Spare":
            state.width += sign * lease.gpus
            if state.shape is not None and state.shape.malleable:
                self._fleet.forget_around(state.leases.values())  # its width says which steps it could take
        if lease.role == "Opportunistic":
            state.unpaid += sign * lease.gpus
            self._line.place(state)
        elif lease.class_ == "Borrowed":
            state.borrowed += sign * lease.gpus

    # What a closed lease used; it was taken off the open ones before, or never was among them

    @staticmethod
    def settle_payer(held: Held, at: int, sign: int) -> None:
        lease, envelope = held.lease, held.envelope
        span = sign * (at - lease.start)
        envelope.by_class[use_class(lease)].settled += reported_amount(lease) * span
        if lease.role != "Opportunistic":
            for account in envelope.accounts(lease):
                account.settled += lease.charge * span

    def settle_run(self, held: Held, at: int, sign: int) -> None:
        lease, run = held.lease, held.run
        span = sign * (at - lease.start)
        charged = 0 if lease.role == "Opportunistic" else lease.charge * span
        if run is None:
            self._spent[lease.uid] = self._spent.get(lease.uid, 0) + charged
            return
        share(run, lease).settled += lease.gpus * span
        run.spent += charged
        if charged:
            for account in run.quotas:
                account.settled += charged

    def take_spent(self, uid: str) -> int:
        """A Run came: what its closed leases used that came before it."""
        return self._spent.pop(uid, 0)

    def _gain_money(self, held: Held, sign: int) -> None:
        """Money came back: it could let a waiting Run start."""
        flavors = {held.lease.flavor}
        for cap in held.envelope.caps:
            flavors.update(envelope.spec.flavor for envelope in cap.envelopes)
        for name in flavors:
            self._fleet.flavor(name).gains += sign
        held.envelope.give_back(sign)


def bill(held: Held, sign: int) -> None:
    """Its payer's books, and every limit that it counts against."""
    lease = held.lease
    held.envelope.by_class[use_class(lease)].open(reported_amount(lease), lease.start, sign)
    if lease.role != "Opportunistic":
        for account in accounts(held):
            account.open(lease.charge, lease.start, held.known_end, sign, goes_on=lease.reason == "Continue")


def accounts(held: Held) -> Iterable[Account]:
    """All limits that a funded lease counts against."""
    yield from held.envelope.accounts(held.lease)
    if held.run is not None:
        yield from held.run.quotas


def share(state: RunState, lease: Lease) -> Tally:
    """What this payer pays for the Run, in this class."""
    return state.funding.setdefault((lease.class_, lease.payer), Tally())
