"""Foretelling: what Reservations say of promises, how those end, and who is warned.

There may be thousands of promises, and no decision waits for what people read. So only some are told in one
step. First come those that were made or moved, the soonest due before others: they are written in the step
that decides them unless many are, and whoever they threaten is warned then (R11). While gangs start and end
all the time only some a second are told of those that are not due soon. Of those without a date the last in
line come first: they wait longest, and a Run that starts before anybody was told of its promise needs no
Reservation any more.

When a Run is expected to start depends on all who wait, and what others foresee changes with every decision.
That is told when nothing is decided, and while much is, from time to time.
"""

from collections.abc import Iterator
from heapq import nsmallest
from itertools import islice

import msgspec

from jobtree.api.kinds.reservation import Reservation, ReservationSpec, ReservationState, ReservationStatus
from jobtree.api.kinds.run import Decided
from jobtree.api.schema.quantities import SECOND, parse_time
from jobtree.core import (
    FINAL_STATES,
    FOREVER,
    PHASES,
    SETS_PROMISE,
    Action,
    CreationOrder,
    ExpectedStarts,
    Promise,
    RunKey,
    RunState,
    World,
    first_estimate_object,
    promised_together,
    reservation_spec,
    reservation_status,
)
from jobtree.manager.decisions.write_set import EventNote, ReservationWrite
from jobtree.manager.planner.cluster_intake import ClusterIntake
from jobtree.manager.planner.event_notes import event_notes_of_action
from jobtree.messages.record_signature import sign
from jobtree.messages.risk_index import RiskIndex, runs_at_risk

BUSY_MS = 2_000  # how often all are told anew while gangs start and end all the time
CALM_MS = 500  # since the last decision: more may be on the way
PER_IDLE_TURN = 200  # in one step
PER_BUSY_TURN = 25  # in one step, while much is decided
PER_SECOND = 20  # on average, meanwhile
BUSY_THRESHOLD = (
    64  # gangs that started or ended lately: then much is decided, though nothing was for a moment
)
RECENT_MS = 10_000  # after so long each of them counts half

PromisedRuns = list[tuple[RunState, Promise]]


class ReservationWrites(msgspec.Struct, frozen=True):
    """What is to be written and said; ``touched`` have a status to be told."""

    reservations: tuple[ReservationWrite, ...]
    touched: set[RunKey]
    warned: set[RunKey]  # of these, who was warned, or is not any more
    told: int = 0  # promises that were looked at
    notes: tuple[EventNote, ...] = ()
    abandoned: tuple[RunKey, ...] = ()
    proofs: tuple[RunKey, ...] = ()


class ChangeRate:
    """How many gangs started or ended lately: what that sets going on servers and nodes lasts a while."""

    def __init__(self) -> None:
        self._count = self._since = 0

    def record_change(self, now: int) -> None:
        self._decay(now)
        self._count += 1

    def ends_at(self, now: int) -> int:
        """When little of it is left, if nothing more comes."""
        self._decay(now)
        halves = (self._count // BUSY_THRESHOLD).bit_length()
        return self._since + halves * RECENT_MS if halves else now

    def _decay(self, now: int) -> None:
        halves = (now - self._since) // RECENT_MS
        self._count >>= min(halves, self._count.bit_length())
        self._since += halves * RECENT_MS


class ReservationPublisher:
    def __init__(self, world: World, intake: ClusterIntake) -> None:
        self.risks = RiskIndex()
        self._world = world
        self._intake = intake
        self._ended: list[ReservationWrite] = []
        self._anew: set[RunKey] = set()  # whose promise was made or moved, and is not yet written
        self._soon: set[RunKey] = set()  # of these, who is due soon, as far as it was noticed
        self._acted: set[RunKey] = set()  # who something was done to since some were last told
        self._reserving: dict[RunKey, Action] = {}  # what is to be said of these then, by Run
        self._round: dict[RunKey, None] = {}  # who is still to be told of those that all are
        self._unexpected: set[RunKey] = set()  # whose Reservation does not yet say when to expect them
        self._touched: set[RunKey] = set()
        self._notes: list[EventNote] = []
        self._expectations = ExpectedStarts(world)
        self._expected_at = self._told_at = 0
        self._acted_at = 0
        self._bustle = ChangeRate()
        self._paced_to = 0  # while much is decided, nothing is told before that
        self.is_behind = False  # something changed since all were last told

    @property
    def has_more(self) -> bool:
        """Whether more is to be told than was in the last step."""
        return bool(self._anew or self._round)

    @property
    def continues_at(self) -> int:
        """When the rest is told, if nothing happens before: at the pace, or all of it once it is calm."""
        paced = self._paced_to + max(1, self._batch_size) * SECOND // PER_SECOND
        return max(self._world.now, self._acted_at + CALM_MS, min(paced, self._idle_at))

    @property
    def _idle_at(self) -> int:
        return max(self._acted_at + CALM_MS, self._bustle.ends_at(self._world.now))

    @property
    def _batch_size(self) -> int:
        """How many the pace must allow before one of them is told: few are told together."""
        return min(PER_BUSY_TURN, len(self._anew))

    def is_unwritten(self, run: RunState, name: str) -> bool:
        """Whether a Reservation is still to be made: nobody speaks of it before."""
        anew = any(key in self._anew for key in run.gang or (run.key,))
        return anew and (run.key[0], name) not in self._intake.reservations

    # Promises that end

    def record_action(self, action: Action) -> None:
        """A promise was made or moved; or it ended without a record: its Reservation says how."""
        promise = action.promise
        self._acted.add(action.run_key)
        if action.opens or action.closes:
            self._bustle.record_change(self._world.now)
        if action.kind in SETS_PROMISE:
            self._anew.add(action.run_key)
        if action.kind == "Reserve":
            self._reserving[action.run_key] = action
        if PHASES.get(action.kind, "Running") != "Running":
            self.risks.forget(action.run_key)
        if promise is None or action.kind not in FINAL_STATES or action.record is not None:
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
        known = self._intake.reservations.get((action.run_key[0], promise.name))
        if known is None:
            return None
        run = self._intake.runs.get(known.spec.run_ref.uid)
        status = self._ended_status(known, FINAL_STATES[action.kind])
        return None if run is None else ReservationWrite(run, promise.name, status)

    def _ended_status(self, known: Reservation, state: ReservationState) -> ReservationStatus:
        told = first_estimate_object(self._world, (known.metadata.namespace, known.metadata.name))
        return msgspec.structs.replace(known.status, state=state, forecast=None, told=told)

    def _ended_reservations(self) -> list[ReservationWrite]:
        """Reservations whose Run started or ended, and whose end a crash kept from being written."""
        outlived, self._intake.ended_reservations = self._intake.ended_reservations, {}
        writes = []
        for (namespace, name), state in outlived.items():
            known = self._intake.reservations[namespace, name]
            run = self._intake.runs.get(known.spec.run_ref.uid)
            if run is not None:
                writes.append(ReservationWrite(run, name, self._ended_status(known, state)))
        return writes

    # What is to be told now

    def refresh(self, *, stirred: bool, at_rest: bool) -> ReservationWrites:
        self.is_behind = self.is_behind or stirred
        begins = self.is_behind and not self._round
        begins = begins and (at_rest or self._world.now >= self._told_at + BUSY_MS)
        self._touched, self._notes = set(), []
        if not at_rest:
            self._acted_at = self._world.now
        if begins:
            self._begin_round()
        ended, self._ended = [*self._ended_reservations(), *self._ended], []
        writes = self._update_some(at_rest=at_rest)
        warned, self.risks.changed = self.risks.changed, set()
        return ReservationWrites(
            (*ended, *writes),
            self._touched | warned,
            warned,
            len(self._touched),
            tuple(self._notes),
            self._abandoned() if begins else (),
            self._proofs() if begins else (),
        )

    def _begin_round(self) -> None:
        """All are to be told anew, in the order of their promises."""
        promised = sorted(self._promised(), key=lambda pair: pair[1].precedence)
        self._round = {run.key: None for run, _ in promised}
        self.risks.keep_only({(run.key[0], promise.name) for run, promise in promised})
        self.is_behind, self._told_at = False, self._world.now

    def _update_some(self, *, at_rest: bool) -> list[ReservationWrite]:
        calm = self._idle_at <= self._world.now
        most = PER_IDLE_TURN if calm else self._rate_limit()
        expectations = self._expected_starts(at_rest=at_rest) if self._round and most else None
        due = self._next_changed(most)
        if expectations is not None:
            due += islice((key for key in self._round if key not in self._anew), max(0, most - len(due)))
        promised = [(run, run.promise) for key in due if (run := self._world.runs.get(key)) and run.promise]
        writes = self._update_reservations(promised, expectations)
        for key in due:
            self._write_with_notes(key)
            self._anew.discard(key)
            self._round.pop(key, None)
        if not calm:
            begun = max(self._paced_to, self._world.now - PER_BUSY_TURN * SECOND // PER_SECOND)
            self._paced_to = begun + len(due) * SECOND // PER_SECOND
        return writes

    def _rate_limit(self) -> int:
        """How many are told while much is decided: all, if they are few, else as many as the pace allows."""
        allowed = min(PER_BUSY_TURN, (self._world.now - self._paced_to) * PER_SECOND // SECOND)
        return allowed if allowed >= self._batch_size else 0

    def _expected_starts(self, *, at_rest: bool) -> ExpectedStarts | None:
        """When Runs are expected, as far as that still stands; it is not asked anew at every decision."""
        stands, now = self._expectations.is_current(), self._world.now
        if not stands and (at_rest or now >= self._expected_at + BUSY_MS):
            self._expectations, self._expected_at, stands = ExpectedStarts(self._world), now, True
        return self._expectations if stands else None

    def _write_with_notes(self, run_key: RunKey) -> None:
        """Its Reservation is made."""
        action, run = self._reserving.pop(run_key, None), self._world.runs.get(run_key)
        if action is not None and run is not None:
            self._notes += event_notes_of_action(self._intake, run, action)

    def _next_changed(self, most: int) -> list[RunKey]:
        """Promises made or moved, those first that come due first.

        All of Runs that have started already are: what these hold depends on them. With one stage go all that
        start together with it.
        """
        looked_at = self._still_promised(self._anew if most else self._acted & self._anew)
        self._acted.clear()
        self._soon |= {one.key for one in looked_at if self._is_due_soon(one)}
        soon = self._still_promised(self._soon & self._anew)
        self._soon = {one.key for one in soon}
        chosen = [one for one in looked_at if one.leases] + nsmallest(PER_BUSY_TURN, soon, key=by_date)
        if most:
            chosen += nsmallest(most, looked_at, key=by_date)
        return list(dict.fromkeys(key for run in chosen for key in run.gang or (run.key,)))

    def _is_due_soon(self, run: RunState) -> bool:
        """Whether those who might have to give way must be told soon, to have all their notice."""
        soon = self._world.now + 2 * self._world.policy.max_notice_ms
        return run.promise is not None and run.promise.begins_before(soon)

    def _still_promised(self, runs: set[RunKey]) -> list[RunState]:
        """Those who are there, and are promised something; of the others there is nothing to tell."""
        known = self._world.runs
        gone = {key for key in runs if key not in known or known[key].promise is None}
        self._anew -= gone
        for key in gone:
            self._reserving.pop(key, None)
        return [known[key] for key in runs - gone]

    def _update_reservations(
        self, promised: PromisedRuns, expectations: ExpectedStarts | None
    ) -> list[ReservationWrite]:
        """Those of these promises whose Reservation does not say it; who is warned is found on the way."""
        writes: list[ReservationWrite] = []
        for run, promise in sorted(promised, key=lambda pair: pair[1].precedence):
            self._touched.add(run.key)
            if promised_together(self._world, run, promise)[0][0] is not run:
                continue  # one Reservation for all stages that start together
            writes += self._write(run, promise, expectations)
            risks = runs_at_risk(self._world, self._intake.key_of, run, promise)
            self.risks.replace_risks((run.key[0], promise.name), promise, risks)
        return writes

    def _write(
        self, state: RunState, promise: Promise, expectations: ExpectedStarts | None
    ) -> Iterator[ReservationWrite]:
        spec, status = (
            reservation_spec(self._world, state, promise),
            reservation_status(self._world, state, promise),
        )
        says, expected = self._is_written(state, promise, spec, status), None
        if expectations is None:
            self._unexpected.add(state.key)
        elif not says or state.key in self._unexpected:
            expected = expectations.estimate_and_record(state)
            self._unexpected.discard(state.key)
        if expected is not None:
            status = reservation_status(self._world, state, promise, expected)
        if expected is not None or not says:
            run = self._intake.runs.get(spec.run_ref.uid, state.run_object)
            yield ReservationWrite(run, promise.name, status, spec)

    def _promised(self) -> PromisedRuns:
        if not self._world.promise_order:
            return []
        return [(run, run.promise) for run in self._world.runs.values() if run.promise]

    def _is_written(
        self, run: RunState, promise: Promise, spec: ReservationSpec, status: ReservationStatus
    ) -> bool:
        known = self._intake.reservations.get((run.key[0], promise.name))
        return known is not None and known.spec == spec and without_expected_start(known.status) == status

    # Reservations that have served

    def _proofs(self) -> tuple[RunKey, ...]:
        """Reservations that hold the record of a lottery and would still go with their Run."""
        known = self._intake.reservations.items()
        return tuple(
            key for key, one in known if one.status.lottery is not None and one.metadata.owner_references
        )

    def _has_started(self, reservation: Reservation) -> bool:
        """Whether nobody needs its proof any more: its Run is gone, and leases of that time may be, too."""
        status, at = reservation.status, reservation.spec.earliest_start
        if status.lottery is None or at is None or reservation.spec.run_ref.uid in self._intake.runs:
            return False
        return parse_time(at) + self._world.policy.lease_retention_ms <= self._world.now

    def _abandoned(self) -> tuple[RunKey, ...]:
        """Reservations that a crash left without a status: they promise nothing, and their name is free.

        And those whose proof has been kept for long enough.
        """
        promised = {(run.key[0], promise.name) for run, promise in self._promised()}
        return tuple(
            key
            for key, known in self._intake.reservations.items()
            if (known.status.state is None and key not in promised) or self._has_started(known)
        )


def by_date(run: RunState) -> tuple[int, int, int, int, CreationOrder]:
    """Those with a date by it; then the others, the last in line first."""
    promise = run.promise
    assert promise is not None
    made, turn, order = promise.precedence
    if promise.at is None:
        return FOREVER, -made, -turn, -order[0], order
    return promise.at, made, turn, order[0], order


def without_expected_start(status: ReservationStatus) -> ReservationStatus:
    """A status without when its Run is expected, which every minute changes a little."""
    if status.forecast is None:
        return status
    forecast = msgspec.structs.replace(status.forecast, expected_start=None)
    return msgspec.structs.replace(status, forecast=forecast)
