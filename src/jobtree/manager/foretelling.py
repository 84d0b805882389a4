"""Foretelling: what Reservations say of promises, how those end, and who is warned.

What a Reservation foresees changes with every decision. It is told when nothing is decided, and while much
is, every other second: there may be a thousand of them, and no decision waits for what people read. A promise
that is made or moved is written at once, and whoever it threatens is warned at once (R11). When its Run is
expected to start depends on all who wait: that is told with the rest.
"""

from collections.abc import Iterator

import msgspec

from jobtree.api.quantities import parse_time
from jobtree.api.reservation import Reservation, ReservationSpec, ReservationState, ReservationStatus
from jobtree.api.run import Decided, Risk
from jobtree.core.actions import Action
from jobtree.core.expect import Expectations
from jobtree.core.lease import RunKey
from jobtree.core.promise import Promise
from jobtree.core.reservations import promised_together, spec_of, status_of, told_to_wire
from jobtree.core.runs import RunState
from jobtree.core.status import Warned
from jobtree.core.transitions import PHASES, PROMISING
from jobtree.core.world import World
from jobtree.manager.intake import Intake, key_of
from jobtree.manager.steps import ReservationWrite
from jobtree.voice.promises import ENDS, risks_of
from jobtree.voice.signing import sign

BUSY_MS = 2_000  # how often all is told while gangs start and end all the time

Promised = list[tuple[RunState, Promise]]


class Foretold(msgspec.Struct, frozen=True):
    """What is to be written; who was warned, or is not any more, has a status to be told."""

    reservations: tuple[ReservationWrite, ...]
    touched: set[RunKey]
    abandoned: tuple[RunKey, ...] = ()
    proofs: tuple[RunKey, ...] = ()
    all_of_it: bool = False


class Foretelling:
    def __init__(self, world: World, intake: Intake) -> None:
        self.warned: dict[RunKey, Warned] = {}
        self._world = world
        self._intake = intake
        self._ended: list[ReservationWrite] = []
        self._anew: set[RunKey] = set()  # whose promise was made or moved, and is not yet written
        self._unexpected: set[RunKey] = set()  # whose Reservation does not yet say when to expect them
        self._touched: set[RunKey] = set()
        self._expectations = Expectations(world)
        self._told_at = 0
        self.is_behind = False  # something changed since all was last told

    # Promises that end

    def note(self, action: Action) -> None:
        """A promise was made or moved; or it ended without a record: its Reservation says how."""
        promise = action.promise
        if action.kind in PROMISING:
            self._anew.add(action.run)
        if PHASES.get(action.kind, "Running") != "Running":
            self.warned.pop(action.run, None)  # it has nothing to lose any more
        if promise is None or action.kind not in ENDS or action.record is not None:
            return
        written = self._ending(action, promise)
        if written is not None:
            self._ended.append(written)

    def resolution(self, actions: list[Action], decided: list[Decided]) -> ReservationWrite | None:
        """The commit point of a resolution: its records, and what it decides for every Run concerned."""
        activations = [action for action in actions if action.record is not None]
        if not activations or activations[-1].promise is None:
            return None
        written = self._ending(activations[-1], activations[-1].promise)
        if written is None:
            return None
        key = self._world.lottery_key
        records = [msgspec.to_builtins(sign(one.record, key)) for one in activations if one.record]
        status = msgspec.structs.replace(
            written.status, lottery=records[0], lotteries=tuple(records[1:]), decided=tuple(decided)
        )
        return msgspec.structs.replace(written, status=status)

    def _ending(self, action: Action, promise: Promise) -> ReservationWrite | None:
        known = self._intake.reservations.get((action.run[0], promise.name))
        if known is None:
            return None
        run = self._intake.runs.get(known.spec.run_ref.uid)
        status = self._ended_status(known, ENDS[action.kind])
        return None if run is None else ReservationWrite(run, promise.name, status)

    def _ended_status(self, known: Reservation, state: ReservationState) -> ReservationStatus:
        told = told_to_wire(self._world, (known.metadata.namespace, known.metadata.name))
        return msgspec.structs.replace(known.status, state=state, forecast=None, told=told)

    def _outlived(self) -> list[ReservationWrite]:
        """Reservations whose Run started or ended, and whose end a crash kept from being written."""
        outlived, self._intake.outlived = self._intake.outlived, {}
        writes = []
        for (namespace, name), state in outlived.items():
            known = self._intake.reservations[namespace, name]
            run = self._intake.runs.get(known.spec.run_ref.uid)
            if run is not None:
                writes.append(ReservationWrite(run, name, self._ended_status(known, state)))
        return writes

    # What is to be told now

    def refresh(self, *, stirred: bool, at_rest: bool) -> Foretold:
        self.is_behind = self.is_behind or stirred
        all_of_it = self.is_behind and (at_rest or self._world.now >= self._told_at + BUSY_MS)
        self._touched = set()
        ended, self._ended = [*self._outlived(), *self._ended], []
        before = dict(self.warned)
        writes = self._tell_all() if all_of_it else self._tell_anew()
        everyone = before.keys() | self.warned.keys()
        self._touched.update(key for key in everyone if before.get(key) != self.warned.get(key))
        self._anew = set()
        return Foretold(
            (*ended, *writes),
            self._touched,
            self._abandoned() if all_of_it else (),
            self._proofs() if all_of_it else (),
            all_of_it,
        )

    def _tell_all(self) -> list[ReservationWrite]:
        self.warned = {}
        self.is_behind, self._told_at = False, self._world.now
        if not self._expectations.stands():
            self._expectations = Expectations(self._world)
        writes = self._tell(self._promised(), self._expectations)
        self._unexpected = set()
        return writes

    def _tell_anew(self) -> list[ReservationWrite]:
        """Promises made or moved; with one stage go all that start together with it."""
        runs = self._world.runs
        states = [runs[key] for key in self._anew if key in runs]
        keys = {key for state in states for key in state.gang or (state.key,)}
        promised = [(state, state.promise) for key in keys if (state := runs.get(key)) and state.promise]
        if promised:
            self._let_off({promise.name for _, promise in promised})
        self._unexpected |= {state.key for state, _ in promised}
        return self._tell(promised)

    def _let_off(self, reservations: set[str]) -> None:
        """What these threatened before is forgotten: they say it anew."""
        for key, known in list(self.warned.items()):
            left = tuple(risk for risk in known.risks if risk.reservation not in reservations)
            if left:
                self.warned[key] = Warned(known.since, left)
            else:
                del self.warned[key]

    def _tell(self, promised: Promised, expectations: Expectations | None = None) -> list[ReservationWrite]:
        """Those of these promises whose Reservation does not say it; who is warned is found on the way."""
        writes: list[ReservationWrite] = []
        for state, promise in sorted(promised, key=lambda pair: pair[1].rank):
            self._touched.add(state.key)
            if promised_together(self._world, state, promise)[0][0] is not state:
                continue  # one Reservation for all stages that start together
            writes += self._write(state, promise, expectations)
            for uid, risk in risks_of(self._world, state, promise):
                self._threaten(self._world.runs[key_of(self._intake.runs[uid])], risk, promise.made)
        return writes

    def _write(
        self, state: RunState, promise: Promise, expectations: Expectations | None
    ) -> Iterator[ReservationWrite]:
        spec, status = spec_of(self._world, state, promise), status_of(self._world, state, promise)
        says, expected = self._says(state, promise, spec, status), None
        if expectations is not None and (not says or state.key in self._unexpected):
            expected = expectations.tell(state)
        if expected is not None:
            status = status_of(self._world, state, promise, expected)
        if expected is not None or not says:
            run = self._intake.runs.get(spec.run_ref.uid, state.run)
            yield ReservationWrite(run, promise.name, status, spec)

    def _threaten(self, state: RunState, risk: Risk, since: int) -> None:
        """Whoever might have to give way knows of it, and all stages that would go with it."""
        for other in self._world.kin.members(state):
            known = self.warned.get(other.key, Warned(since))
            self.warned[other.key] = Warned(known.since, (*known.risks, risk))

    def _promised(self) -> Promised:
        if not self._world.ranks:
            return []
        return [(state, state.promise) for state in self._world.runs.values() if state.promise]

    def _says(
        self, state: RunState, promise: Promise, spec: ReservationSpec, status: ReservationStatus
    ) -> bool:
        known = self._intake.reservations.get((state.key[0], promise.name))
        return known is not None and known.spec == spec and unexpecting(known.status) == status

    # Reservations that have served

    def _proofs(self) -> tuple[RunKey, ...]:
        """Reservations that hold the record of a lottery and would still go with their Run."""
        known = self._intake.reservations.items()
        return tuple(
            key for key, one in known if one.status.lottery is not None and one.metadata.owner_references
        )

    def _has_served(self, reservation: Reservation) -> bool:
        """Whether nobody needs its proof any more: its Run is gone, and leases of that time may be, too."""
        status, at = reservation.status, reservation.spec.earliest_start
        if status.lottery is None or at is None or reservation.spec.run_ref.uid in self._intake.runs:
            return False
        return parse_time(at) + self._world.policy.lease_retention_ms <= self._world.now

    def _abandoned(self) -> tuple[RunKey, ...]:
        """Reservations that a crash left without a status: they promise nothing, and their name is free.

        And those whose proof has been kept for long enough.
        """
        promised = {(state.key[0], promise.name) for state, promise in self._promised()}
        return tuple(
            key
            for key, known in self._intake.reservations.items()
            if (known.status.state is None and key not in promised) or self._has_served(known)
        )


def unexpecting(status: ReservationStatus) -> ReservationStatus:
    """A status without when its Run is expected, which every minute changes a little."""
    if status.forecast is None:
        return status
    forecast = msgspec.structs.replace(status.forecast, expected_start=None)
    return msgspec.structs.replace(status, forecast=forecast)
