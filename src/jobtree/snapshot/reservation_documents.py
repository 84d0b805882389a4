"""Reservations of a simulated cluster: written when promised, kept when they end."""

from typing import Any

import msgspec

from jobtree.api.kinds.reservation import Reservation
from jobtree.api.kinds.run import Risk
from jobtree.api.schema.problems import InputError
from jobtree.api.schema.quantities import format_milli, format_time
from jobtree.api.validation.object_parser import to_document
from jobtree.core import (
    FINAL_STATES,
    Action,
    ExpectedStarts,
    Promise,
    RunKey,
    RunState,
    World,
    child_name,
    first_estimate_object,
    load_first_estimate,
    promise_from_reservation,
    promised_together,
    reservation_forecast,
    reservation_object,
    reservation_spec,
    reservation_status,
)
from jobtree.messages.record_signature import sign
from jobtree.messages.risk_index import RiskIndex, runs_at_risk
from jobtree.messages.run_events import Event, risk_event
from jobtree.snapshot.object_documents import Key, Objects, made_up_uid


class ReservationDocuments:
    def __init__(self, world: World, objects: Objects) -> None:
        self._world = world
        self._objects = objects
        self._numbers: dict[
            RunKey, int
        ] = {}  # the highest by the name of their Run, whether it is there or not

    def take_in(self, reservation: Reservation, where: str) -> None:
        """A Reservation of a state file: a pending one is a promise that holds."""
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
            return  # its Run is gone; it is history
        for stage in reservation.spec.members or ("",):
            self._take_in_part(reservation, stage, number)

    def number_on(self, run: RunState) -> None:
        """A Run may have had a forerunner of its name: what was promised to that one keeps its number."""
        taken = [self._numbers.get(key, 0) for key in (run.key, run.parent) if key is not None]
        run.raise_reservations_made(max(taken))

    def _take_in_part(self, reservation: Reservation, stage: str, number: int) -> None:
        """What a Reservation promises to its Run, or to one of the stages that start together."""
        name = reservation.spec.run_ref.name
        key = (reservation.metadata.namespace, child_name(name, stage) if stage else name)
        run = self._world.runs.get(key)
        if run is None:
            return
        run.raise_reservations_made(number)
        if not stage and reservation.spec.run_ref.uid not in ("", run.uid):
            return  # an earlier Run of that name: its promise is not this one's
        if reservation.status.state in (None, "Pending") and run.phase in ("Pending", "Running"):
            self._world.put_promise(run, promise_from_reservation(reservation, run, stage))
            load_first_estimate(self._world, reservation, run.key)

    def carry_out(self, action: Action) -> list[Event]:
        """Write what an action says about its promise; who is warned by it."""
        promise = action.promise
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
        named = (action.run_key[0], wire.spec.run_ref.name)
        self._numbers[named] = max(self._numbers.get(named, 0), promise.number)
        document = to_document(wire)
        document["metadata"]["uid"] = made_up_uid(key, document["metadata"]["creationTimestamp"])
        self._objects.put(key, document)
        return self._warnings(run, promise, action.at)

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
            written = msgspec.json.decode(msgspec.json.encode(record))
            if "lottery" in status:
                status.setdefault("lotteries", []).append(written)  # of further stages that started with it
            else:
                status["lottery"] = written

    def collect(self) -> None:
        """Reservations go with their Run, as on a live cluster, where they belong to it."""
        for key, body in list(self._objects.of("Reservation")):
            if ("Run", key[1], body["spec"]["runRef"]["name"]) not in self._objects:
                self._objects.remove(key)

    def _warnings(self, run: RunState, promise: Promise, at: int) -> list[Event]:
        """Runs in the conflict set see it at once (R11)."""
        if promise.at is None:
            return []
        outcome = reservation_forecast(self._world, run, promise)
        due = format_time(promise.at)
        warnings = []
        for victim in outcome.conflict_set():
            probability = format_milli(outcome.odds.get(victim.uid, 0))
            risk = Risk(reservation=promise.name, at=due, kill_probability=probability)
            warnings.append(risk_event(at, victim.key, risk))
        return warnings

    def refresh(self) -> RiskIndex:
        """Bring every pending Reservation up to date; the warnings that follow for other Runs."""
        threats = RiskIndex()
        expectations = ExpectedStarts(self._world)
        by_uid = {run.uid: run.key for run in self._world.runs.values()}
        promised = [(run, run.promise) for run in self._world.runs.values() if run.promise]
        for run, promise in sorted(promised, key=lambda pair: pair[1].precedence):
            if promised_together(self._world, run, promise)[0][0] is not run:
                continue  # one Reservation for all stages that start together
            body = self._objects.get(("Reservation", run.key[0], promise.name))
            if body is not None:
                body["spec"] = msgspec.to_builtins(reservation_spec(self._world, run, promise))
                expected = expectations.estimate_and_record(run)
                body["status"] = msgspec.to_builtins(reservation_status(self._world, run, promise, expected))
            risks = runs_at_risk(self._world, by_uid.__getitem__, run, promise)
            threats.replace_risks((run.key[0], promise.name), promise, risks)
        return threats
