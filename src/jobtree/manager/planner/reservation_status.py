"""Writes the specs and statuses of Reservations, and the risks of Runs that follow from them.

There may be thousands of promises, and no decision waits for what people read. So a turn writes only some of
them. Promises that were made or moved come first, in the order of their dates: they are written in the turn
that decides them unless there are many, and Runs that they put at risk are warned then (R11). While gangs
start and end all the time, only ``PER_SECOND`` promises that are not due soon are written per second. Of
promises without a date the last in creation order come first: these Runs wait longest, and a Run that starts
before its Reservation is written needs none. A firm date is written all the same: the Run keeps it (R7).

The expected start of a Run depends on all waiting Runs, and every decision changes some forecasts. All
Reservations are therefore written again in rounds: when nothing is decided, and every ``BUSY_MS`` otherwise.
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
    STOP_CLOSURES,
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
    reservations_of,
    status_after_stop,
)
from jobtree.manager.decisions.write_set import EventNote, ReservationWrite
from jobtree.manager.planner.cluster_intake import ClusterIntake
from jobtree.manager.planner.event_notes import event_notes_of_action
from jobtree.messages.record_signature import sign
from jobtree.messages.risk_index import RiskIndex, runs_at_risk

BUSY_MS = 2_000  # between two rounds, while gangs start and end all the time
CALM_MS = 500  # without a decision; before that more may be on the way
PER_IDLE_TURN = 50  # promises in one turn
PER_BUSY_TURN = 25  # promises in one turn, while much is decided
PER_SECOND = 20  # promises on average, while much is decided
BUSY_THRESHOLD = 64  # gangs that started or ended lately, above which much is decided
RECENT_MS = 10_000  # after which each of these gangs counts half

PromisedRuns = list[tuple[RunState, Promise]]


class ReservationWrites(msgspec.Struct, frozen=True):
    """Reservations to write and Events on their Runs; the statuses of ``touched`` may change."""

    reservations: tuple[ReservationWrite, ...]
    touched: set[RunKey]
    warned: set[RunKey]  # Runs whose risks changed
    checked_promises: int = 0
    event_notes: tuple[EventNote, ...] = ()
    abandoned: tuple[Reservation, ...] = ()  # Reservations to delete
    proofs: tuple[RunKey, ...] = ()  # Reservations that are to outlive their Runs


class ChangeRate:
    """Counts the gangs that started or ended lately: servers and nodes are busy with them for a while."""

    def __init__(self) -> None:
        self._count = self._since = 0

    def record_change(self, now: int) -> None:
        self._decay(now)
        self._count += 1

    def ends_at(self, now: int) -> int:
        """Returns the instant at which the count is below the threshold, if no gang starts or ends before."""
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
        self._stopped: set[RunKey] = set()  # Runs that Jobtree may have stopped too soon after their date
        self._loaded = False  # whether such stops of before the last restart have been looked for
        self._unwritten: set[RunKey] = set()  # Runs whose promise was made or moved, and is not written yet
        self._due_soon: set[RunKey] = set()  # of these, those that were seen to be due soon
        self._acted: set[RunKey] = set()  # Runs with an action since the last batch was chosen
        self._reserve_actions: dict[RunKey, Action] = {}  # their Events are written with their Reservations
        self._round: dict[RunKey, None] = {}  # Runs of this round whose Reservations are not written yet
        self._without_estimate: set[RunKey] = set()  # Runs whose Reservation has no expected start yet
        self._touched: set[RunKey] = set()
        self._event_notes: list[EventNote] = []
        self._expectations = ExpectedStarts(world)
        self._expected_at = self._round_began_at = 0
        self._acted_at = 0
        self._change_rate = ChangeRate()
        self._paced_until = 0  # what was written counts against the rate until then
        self.is_held = False  # whether reports are still being written, so that only urgent ones are added
        self.is_behind = False  # whether something changed since the last round began

    @property
    def has_more(self) -> bool:
        """Whether promises are left that the last turn did not write."""
        return bool(self._unwritten or self._round)

    @property
    def continues_at(self) -> int:
        """The instant at which more is written if nothing happens before: by the rate, or when it is calm."""
        by_rate = self._paced_until + max(1, self._batch_size) * SECOND // PER_SECOND
        return max(self._world.now, self._acted_at + CALM_MS, min(by_rate, self._idle_at))

    @property
    def _idle_at(self) -> int:
        return max(self._acted_at + CALM_MS, self._change_rate.ends_at(self._world.now))

    @property
    def _batch_size(self) -> int:
        """How many promises the rate must allow before the next are written: a few are written together."""
        return min(PER_BUSY_TURN, len(self._unwritten))

    def is_unwritten(self, run: RunState, name: str) -> bool:
        """Whether a Reservation is still to be created: before that no status names it."""
        has_unwritten = any(key in self._unwritten for key in run.gang or (run.key,))
        return has_unwritten and (run.key[0], name) not in self._intake.reservations

    # Promises that end

    def record_action(self, action: Action) -> None:
        """Marks the promise of an action as unwritten, or prepares the last status of its Reservation."""
        promise = action.promise
        self._acted.add(action.run_key)
        if action.opens or action.closes:
            self._change_rate.record_change(self._world.now)
        if any(closing.reason in STOP_CLOSURES for closing in action.closes):
            self._stopped.add(action.run_key)
        if action.kind in SETS_PROMISE:
            self._unwritten.add(action.run_key)
        if action.kind == "Reserve":
            self._reserve_actions[action.run_key] = action
        if PHASES.get(action.kind, "Running") != "Running":
            self.risks.forget(action.run_key)
        if promise is None or action.kind not in FINAL_STATES or action.record is not None:
            return
        write = self._last_write(action, promise)
        if write is not None:
            self._ended.append(write)

    def resolution(self, actions: list[Action], decided: list[Decided]) -> ReservationWrite | None:
        """Returns the commit point of a resolution: its records, and its decision for every Run in it."""
        activations = [action for action in actions if action.record is not None]
        if not activations or activations[-1].promise is None:
            return None
        write = self._last_write(activations[-1], activations[-1].promise)
        if write is None:
            return None
        key = self._world.lottery_key
        records = [msgspec.to_builtins(sign(action.record, key)) for action in activations if action.record]
        status = msgspec.structs.replace(
            write.status, lottery=records[0], lotteries=tuple(records[1:]), decided=tuple(decided)
        )
        return msgspec.structs.replace(write, status=status)

    def _last_write(self, action: Action, promise: Promise) -> ReservationWrite | None:
        reservation = self._intake.reservations.get((action.run_key[0], promise.name))
        if reservation is None:
            return None
        run_object = self._intake.runs.get(reservation.spec.run_ref.uid)
        status = self._ended_status(reservation, FINAL_STATES[action.kind])
        return None if run_object is None else ReservationWrite(run_object, promise.name, status)

    def _ended_status(self, reservation: Reservation, state: ReservationState) -> ReservationStatus:
        first_estimate = first_estimate_object(
            self._world, (reservation.metadata.namespace, reservation.metadata.name)
        )
        return msgspec.structs.replace(reservation.status, state=state, forecast=None, told=first_estimate)

    def _ended_reservations(self) -> list[ReservationWrite]:
        """Returns the last statuses of Reservations whose end a crash kept from being written."""
        ended, self._intake.ended_reservations = self._intake.ended_reservations, {}
        writes = []
        for (namespace, name), state in ended.items():
            reservation = self._intake.reservations[namespace, name]
            run_object = self._intake.runs.get(reservation.spec.run_ref.uid)
            if run_object is not None:
                writes.append(ReservationWrite(run_object, name, self._ended_status(reservation, state)))
        return writes

    # Starts that were stopped too soon

    def _early_stops(self) -> list[ReservationWrite]:
        """Returns the slips of Reservations whose Run was stopped too soon after its promised start (R5)."""
        if not self._loaded:
            self._loaded, candidates = True, dict.fromkeys(self._intake.reservations)
        else:
            candidates = {key: None for run_key in sorted(self._stopped) for key in self._last_ended(run_key)}
        writes = []
        for reservation in [self._intake.reservations[key] for key in candidates]:
            status = status_after_stop(self._world, reservation)
            run_object = self._intake.runs.get(reservation.spec.run_ref.uid)
            if status is not None and run_object is not None:
                writes.append(ReservationWrite(run_object, reservation.metadata.name, status))
        return writes

    def _last_ended(self, run_key: RunKey) -> Iterator[RunKey]:
        """Yields the last Reservation of a Run that has ended; the next turn looks again if one ends now."""
        run = self._world.runs.get(run_key)
        for key in reservations_of(self._world, run) if run is not None else ():
            reservation = self._intake.reservations.get(key)
            if reservation is None:
                continue
            if reservation.status.state not in (None, "Pending"):
                yield key
                break
            if run is not None and (run.promise is None or run.promise.name != key[1]):
                return  # its end is written in this turn
        self._stopped.discard(run_key)

    # What is to be written now

    def refresh(self, *, inputs_changed: bool, at_rest: bool) -> ReservationWrites:
        self.is_behind = self.is_behind or inputs_changed
        begins = self.is_behind and not self._round
        begins = begins and (at_rest or self._world.now >= self._round_began_at + BUSY_MS)
        self._touched, self._event_notes = set(), []
        if not at_rest:
            self._acted_at = self._world.now
        if begins:
            self._begin_round()
        ended, self._ended = [*self._ended_reservations(), *self._ended], []
        ended = [*self._early_stops(), *ended]
        writes = self._update_some(at_rest=at_rest)
        warned, self.risks.changed = self.risks.changed, set()
        return ReservationWrites(
            (*ended, *writes),
            self._touched | warned,
            warned,
            len(self._touched),
            tuple(self._event_notes),
            self._abandoned() if begins else (),
            self._proofs() if begins else (),
        )

    def _begin_round(self) -> None:
        """Has all Reservations checked again, in the order of their promises."""
        promised = sorted(self._promised(), key=lambda pair: pair[1].precedence)
        self._round = {run.key: None for run, _ in promised}
        self.risks.keep_only({(run.key[0], promise.name) for run, promise in promised})
        self.is_behind, self._round_began_at = False, self._world.now

    def _update_some(self, *, at_rest: bool) -> list[ReservationWrite]:
        calm = self._idle_at <= self._world.now
        most = 0 if self.is_held else PER_IDLE_TURN if calm else self._rate_limit()
        expectations = self._expected_starts(at_rest=at_rest) if self._round and most else None
        batch = self._next_changed(most)
        if expectations is not None:
            unchanged = (key for key in self._round if key not in self._unwritten)
            batch += islice(unchanged, max(0, most - len(batch)))
        promised = [(run, run.promise) for key in batch if (run := self._world.runs.get(key)) and run.promise]
        writes = self._update_reservations(promised, expectations)
        for key in batch:
            self._add_reserve_events(key)
            self._unwritten.discard(key)
            self._round.pop(key, None)
        if not calm:
            begun = max(self._paced_until, self._world.now - PER_BUSY_TURN * SECOND // PER_SECOND)
            self._paced_until = begun + len(batch) * SECOND // PER_SECOND
        return writes

    def _rate_limit(self) -> int:
        """Returns how many promises may be written now while much is decided: a whole batch or none."""
        allowed = min(PER_BUSY_TURN, (self._world.now - self._paced_until) * PER_SECOND // SECOND)
        return allowed if allowed >= self._batch_size else 0

    def _expected_starts(self, *, at_rest: bool) -> ExpectedStarts | None:
        """Returns the expected starts if they are current; they are not computed at every decision."""
        is_current, now = self._expectations.is_current(), self._world.now
        if not is_current and (at_rest or now >= self._expected_at + BUSY_MS):
            self._expectations, self._expected_at, is_current = ExpectedStarts(self._world), now, True
        return self._expectations if is_current else None

    def _add_reserve_events(self, run_key: RunKey) -> None:
        """Adds the Events of a promise whose Reservation is created in this turn."""
        action, run = self._reserve_actions.pop(run_key, None), self._world.runs.get(run_key)
        if action is not None and run is not None:
            self._event_notes += event_notes_of_action(self._intake, run, action)

    def _next_changed(self, most: int) -> list[RunKey]:
        """Returns the next Runs whose promise was made or moved: those that run, then by date.

        All Runs that run already are included, because their leases depend on their promises. A stage brings
        all stages that start together with it.
        """
        runs = self._still_promised(self._unwritten if most else self._acted & self._unwritten)
        self._acted.clear()
        self._due_soon |= {run.key for run in runs if self._is_due_soon(run)}
        soon = self._still_promised(self._due_soon & self._unwritten)
        self._due_soon = {run.key for run in soon}
        chosen = [run for run in runs if run.leases] + nsmallest(PER_BUSY_TURN, soon, key=by_date)
        if most:
            chosen += nsmallest(most, runs, key=by_date)
        return list(dict.fromkeys(key for run in chosen for key in run.gang or (run.key,)))

    def _is_due_soon(self, run: RunState) -> bool:
        """Whether the Reservation must be written soon, so that Runs at risk have their whole notice."""
        soon = self._world.now + 2 * self._world.policy.max_notice_ms
        return run.promise is not None and run.promise.begins_before(soon)

    def _still_promised(self, runs: set[RunKey]) -> list[RunState]:
        """Returns the Runs that still have a promise; the others have nothing to write."""
        existing = self._world.runs
        without_promise = {key for key in runs if key not in existing or existing[key].promise is None}
        self._unwritten -= without_promise
        for key in without_promise:
            self._reserve_actions.pop(key, None)
        return [existing[key] for key in runs - without_promise]

    def _update_reservations(
        self, promised: PromisedRuns, expectations: ExpectedStarts | None
    ) -> list[ReservationWrite]:
        """Returns writes for the promises whose Reservation differs, and updates the risks of other Runs."""
        writes: list[ReservationWrite] = []
        for run, promise in sorted(promised, key=lambda pair: pair[1].precedence):
            self._touched.add(run.key)
            if promised_together(self._world, run, promise)[0][0] is not run:
                continue  # stages that start together have one Reservation
            writes += self._write(run, promise, expectations)
            risks = runs_at_risk(self._world, self._intake.key_of, run, promise)
            self.risks.replace_risks((run.key[0], promise.name), promise, risks)
        return writes

    def _write(
        self, run: RunState, promise: Promise, expectations: ExpectedStarts | None
    ) -> Iterator[ReservationWrite]:
        spec = reservation_spec(self._world, run, promise)
        status = reservation_status(self._world, run, promise)
        is_written, expected = self._is_written(run, promise, spec, status), None
        if expectations is None:
            self._without_estimate.add(run.key)
        elif not is_written or run.key in self._without_estimate:
            expected = expectations.estimate_and_record(run)
            self._without_estimate.discard(run.key)
        if expected is not None:
            status = reservation_status(self._world, run, promise, expected)
        if expected is not None or not is_written:
            run_object = self._intake.runs.get(spec.run_ref.uid, run.run_object)
            yield ReservationWrite(run_object, promise.name, status, spec)

    def _promised(self) -> PromisedRuns:
        if not self._world.promise_order:
            return []
        return [(run, run.promise) for run in self._world.runs.values() if run.promise]

    def _is_written(
        self, run: RunState, promise: Promise, spec: ReservationSpec, status: ReservationStatus
    ) -> bool:
        reservation = self._intake.reservations.get((run.key[0], promise.name))
        return (
            reservation is not None
            and reservation.spec == spec
            and without_estimates(reservation.status) == without_estimates(status)
            and is_near(place_of(reservation.status), place_of(status))
        )

    # Reservations that are not needed any more

    def _proofs(self) -> tuple[RunKey, ...]:
        """Reservations that hold the record of a lottery and would be deleted with their Run."""
        return tuple(
            key
            for key, reservation in self._intake.reservations.items()
            if reservation.status.lottery is not None and reservation.metadata.owner_references
        )

    def _is_outdated_proof(self, reservation: Reservation) -> bool:
        """Whether the Run is gone, and the draw is so old that leases of that time may be archived."""
        status, at = reservation.status, reservation.spec.earliest_start
        if status.lottery is None or at is None or reservation.spec.run_ref.uid in self._intake.runs:
            return False
        return parse_time(at) + self._world.policy.lease_retention_ms <= self._world.now

    def _abandoned(self) -> tuple[Reservation, ...]:
        """Reservations to delete: those that a crash left without a status, and outdated proofs."""
        promised = {(run.key[0], promise.name) for run, promise in self._promised()}
        return tuple(
            reservation
            for key, reservation in self._intake.reservations.items()
            if (reservation.status.state is None and key not in promised)
            or self._is_outdated_proof(reservation)
        )


def by_date(run: RunState) -> tuple[int, int, int, int, CreationOrder]:
    """Sorts promises by date, then those without a date, the last in creation order first."""
    promise = run.promise
    assert promise is not None
    made_at, sequence, creation_order = promise.precedence
    if promise.at is None:
        return FOREVER, -made_at, -sequence, -creation_order[0], creation_order
    return promise.at, made_at, sequence, creation_order[0], creation_order


def without_estimates(status: ReservationStatus) -> ReservationStatus:
    """Returns a status without the expected start and the place, which change a little all the time."""
    if status.forecast is None:
        return status
    forecast = msgspec.structs.replace(status.forecast, expected_start=None, place=None)
    return msgspec.structs.replace(status, forecast=forecast)


def place_of(status: ReservationStatus) -> int:
    """Returns the place in line that a status shows; 0 if it shows none."""
    place = status.forecast and status.forecast.place
    return place.number if place else 0


def is_near(written: int, present: int) -> bool:
    """Whether a written place will do: it is written again once it has halved or doubled (R13)."""
    return (written < 2 * present and present < 2 * written) or written == present
