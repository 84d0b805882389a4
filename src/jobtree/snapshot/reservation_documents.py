"""Writes the Reservations of a snapshot and loads their promises."""

from collections.abc import Iterator
from typing import Any

import msgspec

from jobtree.api.kinds.reservation import Reservation
from jobtree.api.kinds.run import Risk, Run
from jobtree.api.schema.problems import InputError
from jobtree.api.schema.quantities import format_milli, format_time
from jobtree.api.validation.object_parser import parse_object, to_document
from jobtree.core import (
    FINAL_STATES,
    STOP_CLOSURES,
    Action,
    ExpectedStarts,
    Promise,
    RunKey,
    RunState,
    World,
    child_name,
    first_estimate_object,
    load_first_estimate,
    load_promise,
    promised_together,
    reservation_forecast,
    reservation_object,
    reservation_spec,
    reservation_status,
    reservations_of,
    status_after_stop,
)
from jobtree.messages.record_signature import sign
from jobtree.messages.risk_index import RiskIndex, is_news, runs_at_risk
from jobtree.messages.run_events import Event, risk_event
from jobtree.snapshot.object_documents import Key, Objects, derived_uid


class ReservationDocuments:
    def __init__(self, world: World, objects: Objects) -> None:
        self._world = world
        self._objects = objects
        # The highest number by the name of the Run, which need not exist any more.
        self._numbers: dict[RunKey, int] = {}
        # The probabilities that Runs were told, by Run and Reservation.
        self._told: dict[tuple[RunKey, str], str] = {}

    def load_risks(self, run_object: Run) -> None:
        """Loads what a Run was told."""
        key = (run_object.metadata.namespace, run_object.metadata.name)
        for risk in run_object.status.risk:
            self._told[key, risk.reservation] = risk.kill_probability

    def load(self, reservation: Reservation, where: str) -> None:
        """Loads a Reservation: its number, its first estimate, and its promise if it is pending."""
        key = (reservation.metadata.namespace, reservation.spec.run_ref.name)
        run = self._world.runs.get(key)
        try:
            number = int(reservation.metadata.name.rpartition("-")[2])
        except ValueError:
            rule = "metadata.name: must be the Run's name, a dash and a number"
            raise InputError(where, [rule]) from None
        self._numbers[key] = max(self._numbers.get(key, 0), number)
        if reservation.status.told and reservation.status.told.started:
            load_first_estimate(self._world, reservation, key)
        if run is None:
            return
        for stage in reservation.spec.members or ("",):
            self._load_part(reservation, stage, number)

    def continue_numbering(self, run: RunState) -> None:
        """Numbers the next Reservation of a Run after those of an earlier Run of the same name."""
        numbers = [self._numbers.get(key, 0) for key in (run.key, run.parent) if key is not None]
        run.raise_reservations_made(max(numbers))

    def _load_part(self, reservation: Reservation, stage: str, number: int) -> None:
        """Loads the promise to the Run of a Reservation, or to one of the stages that start together."""
        name = reservation.spec.run_ref.name
        key = (reservation.metadata.namespace, child_name(name, stage) if stage else name)
        run = self._world.runs.get(key)
        if run is None:
            return
        run.raise_reservations_made(number)
        if not stage and reservation.spec.run_ref.uid not in ("", run.uid):
            return  # the promise was to an earlier Run of that name
        if reservation.status.state in (None, "Pending") and run.phase in ("Pending", "Running"):
            load_promise(self._world, reservation, run, stage)

    def write(self, action: Action) -> list[Event]:
        """Writes the Reservation of an action. Returns the warnings to other Runs."""
        promise = action.promise
        if any(closing.reason in STOP_CLOSURES for closing in action.closes):
            self._record_early_stop(action.run_key)
        if promise is None:
            return []
        key = ("Reservation", action.run_key[0], promise.name)
        run = self._world.runs.get(action.run_key)
        if action.kind in FINAL_STATES:
            self._end(key, action)
            return []
        if run is None or run.promise is not promise:
            return []
        wire = reservation_object(self._world, run, promise)
        owner_key = (action.run_key[0], wire.spec.run_ref.name)
        self._numbers[owner_key] = max(self._numbers.get(owner_key, 0), promise.number)
        document = to_document(wire)
        document["metadata"]["uid"] = derived_uid(key, document["metadata"]["creationTimestamp"])
        self._objects.put(key, document)
        return self._warnings(run, promise, action.at)

    def _record_early_stop(self, run_key: RunKey) -> None:
        """Adds a slip to the last Reservation that has ended, if its Run was stopped too soon (R5)."""
        run = self._world.runs.get(run_key)
        for name in reservations_of(self._world, run) if run is not None else ():
            key = ("Reservation", *name)
            body = self._objects.get(key)
            if body is None or body.get("status", {}).get("state", "Pending") == "Pending":
                continue  # it is made for the time after the stop
            reservation = parse_object(body, self._objects.where(key))
            assert isinstance(reservation, Reservation)
            status = status_after_stop(self._world, reservation)
            if status is not None:
                body["status"]["slips"] = msgspec.to_builtins(status.slips)
            return

    def _end(self, key: Key, action: Action) -> None:
        body = self._objects.get(key)
        promise = action.promise
        if body is None or promise is None:
            return
        status: dict[str, Any] = body.setdefault("status", {})
        status["state"] = FINAL_STATES[action.kind]
        status.pop("forecast", None)
        if estimate := first_estimate_object(self._world, key[1:]):
            status["told"] = msgspec.to_builtins(estimate)
        if action.record is not None:
            record = sign(action.record, self._world.lottery_key)
            record_document = msgspec.json.decode(msgspec.json.encode(record))
            if "lottery" in status:
                status.setdefault("lotteries", []).append(record_document)  # of further stages of the gang
            else:
                status["lottery"] = record_document

    def remove_unowned(self) -> None:
        """Removes Reservations whose Run does not exist any more, as garbage collection does on a cluster."""
        for key, body in list(self._objects.of("Reservation")):
            if ("Run", key[1], body["spec"]["runRef"]["name"]) not in self._objects:
                self._objects.remove(key)

    def _warnings(self, run: RunState, promise: Promise, at: int) -> list[Event]:
        """Returns a warning for each Run in the conflict set of a promise (R11)."""
        if promise.at is None:
            return []
        outcome = reservation_forecast(self._world, run, promise)
        due = format_time(promise.at)
        warnings = []
        for victim in outcome.conflict_set():
            probability = format_milli(outcome.odds.get(victim.uid, 0))
            risk = Risk(reservation=promise.name, at=due, kill_probability=probability)
            self._told[victim.key, promise.name] = probability
            warnings.append(risk_event(at, victim.key, risk))
        return warnings

    def warn_others(self, at: int) -> list[Event]:
        """Returns a warning for each Run that is newly at risk although no promise to blame was changed."""
        warnings, told = [], {}
        by_uid = {run.uid: run.key for run in self._world.runs.values()}
        for run, promise in self._promised():
            for run_key, risk in sorted(runs_at_risk(self._world, by_uid.__getitem__, run, promise)):
                if is_news(self._told.get((run_key, promise.name)), risk):
                    warnings.append(risk_event(at, run_key, risk))
                told[run_key, promise.name] = risk.kill_probability
        self._told = told
        return warnings

    def _promised(self) -> Iterator[tuple[RunState, Promise]]:
        """Yields the promises by precedence, one for all stages that start together."""
        promised = [(run, run.promise) for run in self._world.runs.values() if run.promise]
        for run, promise in sorted(promised, key=lambda pair: pair[1].precedence):
            if promised_together(self._world, run, promise)[0][0] is run:
                yield run, promise

    def refresh(self) -> RiskIndex:
        """Updates every pending Reservation. Returns the risks of all Runs."""
        risk_index = RiskIndex()
        expectations = ExpectedStarts(self._world)
        by_uid = {run.uid: run.key for run in self._world.runs.values()}
        for run, promise in self._promised():
            body = self._objects.get(("Reservation", run.key[0], promise.name))
            if body is not None:
                body["spec"] = msgspec.to_builtins(reservation_spec(self._world, run, promise))
                expected = expectations.estimate_and_record(run)
                body["status"] = msgspec.to_builtins(reservation_status(self._world, run, promise, expected))
            risks = runs_at_risk(self._world, by_uid.__getitem__, run, promise)
            risk_index.replace_risks((run.key[0], promise.name), promise, risks)
        return risk_index
