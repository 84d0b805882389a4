"""Counts the GPU-hours of budget that are left idle for Runs without a date, and when they are used up (C12).

An envelope keeps what returns to it for the first Run in line without a date. What is free of that is idle.
Envelopes whose charge or promises changed are marked, and counted again before the clock advances. Of a Run,
the record changes only with the number of GPUs that are idle for it, so its Reservation can hold it: a
restarted manager goes on counting.
"""

import msgspec

from jobtree.api.schema.quantities import MILLI
from jobtree.core.accounts.budget_index import BudgetIndex
from jobtree.core.accounts.envelope_accounts import EnvelopeState
from jobtree.core.model.gpu_lease import EnvelopeKey, RunKey
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.timers import TimerQueue


class IdleRecord(msgspec.Struct, frozen=True):
    """The usage that was left idle for a Run by an instant, and the charge that is left idle since then."""

    number: int  # of its Reservation
    used: int  # in thousandths of a GPU times milliseconds
    since: int
    charge: int

    def used_by(self, at: int) -> int:
        return self.used + self.charge * (at - self.since)

    def reaches(self, limit: int) -> int | None:
        """Returns the first instant at which the usage is at the limit; None: not with this charge."""
        return None if self.charge <= 0 else self.since - (self.used - limit) // self.charge


class IdleBudget:
    def __init__(
        self, runs: dict[RunKey, RunState], budgets: BudgetIndex, timers: TimerQueue, keep_idle_ms: int
    ) -> None:
        self._runs = runs
        self._budgets = budgets
        self._timers = timers
        self._keep_idle_ms = keep_idle_ms
        self._idle: dict[EnvelopeKey, tuple[RunKey, int]] = {}  # for which Run, and how much charge
        self.records: dict[RunKey, IdleRecord] = {}

    def set_keep_idle(self, keep_idle_ms: int) -> None:
        self._keep_idle_ms = keep_idle_ms
        for run_key in list(self.records):
            self._schedule(run_key)

    def load(self, run_key: RunKey, record: IdleRecord) -> None:
        """Loads what a Reservation says."""
        self.records[run_key] = record

    def limit(self, run: RunState) -> int:
        """Returns the usage that may be left idle for a Run: its width times ``keepIdle``."""
        return 0 if run.promise is None else run.promise.width * MILLI * self._keep_idle_ms

    def update(self) -> None:
        """Counts the marked envelopes again, as of now."""
        marked, run_keys = self._budgets.kept_budget_changed, set[RunKey]()
        for key in marked:
            before = self._idle.pop(key, None)
            after = self._idle_on(self._budgets.envelopes.get(key))
            if after is not None:
                self._idle[key] = after
            run_keys.update(idle[0] for idle in (before, after) if idle is not None)
        marked.clear()
        for run_key in run_keys:
            self._update_record(run_key)

    def _idle_on(self, envelope: EnvelopeState | None) -> tuple[RunKey, int] | None:
        """Returns the first Run in line without a date, and what this envelope leaves idle for it."""
        if envelope is None or not envelope.undated_promises:
            return None
        _, run_key = envelope.undated_promises[0]
        kept = envelope.charge_of(envelope.promises[run_key]) if envelope.open_at(self._timers.now) else 0
        return run_key, max(0, min(kept, envelope.account.free_charge()))

    def _update_record(self, run_key: RunKey) -> None:
        run = self._runs.get(run_key)
        promise = run.promise if run is not None else None
        record = self.records.get(run_key)
        if promise is None:
            self.records.pop(run_key, None)
            self._schedule(run_key)
            return
        now = self._timers.now
        if record is None or record.number != promise.number:
            record = IdleRecord(promise.number, 0, now, 0)
        idle = [self._idle.get(key) for key, _ in promise.funding] if promise.at is None else []
        charge = sum(entry[1] for entry in idle if entry is not None and entry[0] == run_key)
        if charge != record.charge:
            record = IdleRecord(promise.number, record.used_by(now), now, charge)
        self.records[run_key] = record
        self._schedule(run_key)

    def _schedule(self, run_key: RunKey) -> None:
        """Sets the timer of a Run to the instant at which its usage is used up."""
        run, record = self._runs.get(run_key), self.records.get(run_key)
        ends = None if run is None or record is None else record.reaches(self.limit(run))
        self._timers.set_idle_end(run_key, ends)
