"""Telling: what Runs, Reservations and Budgets say of themselves, written only where it changed.

GPU-hours grow while nothing happens. They are brought up to date with every other change, and never make
one by themselves: a quiet cluster costs no writes.

A plan passes over Runs that a change does not help; what they were told may then speak of earlier figures.
They are told again when nothing else is to be done, so many at a time: there may be thousands of them.

What Budgets say changes with every lease. They say it when nothing is decided, and while much is, every other
second: figures for people need not be written twenty times as often as they are read.
"""

from itertools import islice

import msgspec

from jobtree.api.budget import Budget, BudgetStatus, ClassUse
from jobtree.api.quantities import parse_time
from jobtree.api.reservation import Reservation, ReservationSpec, ReservationStatus
from jobtree.api.run import Decided, RunStatus
from jobtree.core.actions import Action
from jobtree.core.admit import retell
from jobtree.core.elastic import retell_stalled
from jobtree.core.expect import Expectations
from jobtree.core.lease import RunKey
from jobtree.core.promise import Promise
from jobtree.core.reservations import promised_together, spec_of, status_of
from jobtree.core.runs import RunState
from jobtree.core.status import Warned, budget_status, run_status
from jobtree.core.world import World
from jobtree.manager.intake import Intake
from jobtree.manager.steps import Note, ReservationWrite, RunWrite
from jobtree.voice.promises import ENDS, risks_of
from jobtree.voice.signing import sign

RETELL_MS = 5_000
RETOLD_AT_ONCE = 200
REST_MS = 200
BUSY_MS = 2_000  # how often a Budget is told while gangs start and end all the time


class Told(msgspec.Struct, frozen=True):
    statuses: tuple[RunWrite, ...]
    reservations: tuple[ReservationWrite, ...]
    abandoned: tuple[RunKey, ...]
    proofs: tuple[RunKey, ...]
    budgets: tuple[tuple[str, BudgetStatus], ...]
    notes: tuple[Note, ...]
    foresaw: bool  # whether the forecasts were brought up to date


class Telling:
    def __init__(self, world: World, intake: Intake) -> None:
        self.warned: dict[RunKey, Warned] = {}
        self._world = world
        self._intake = intake
        self._runs: dict[str, RunStatus] = {}  # by UID, as last told
        self._budgets: dict[str, tuple[str, BudgetStatus]] = {}  # by name, with the UID, as last told
        self._budgets_at: dict[str, int] = {}  # when they were last told
        self._touched: set[RunKey] = set()
        self._touched_budgets: set[str] = set()
        self._ended: list[ReservationWrite] = []
        self._unsure = False  # something changed since Runs were last told why they wait, or do not grow
        self._stale: dict[RunKey, None] = {}  # waiting Runs to be told again, in the order of the queue
        self._retold_at = 0

    # What others know already

    def knows_run(self, uid: str, status: RunStatus) -> None:
        self._runs[uid] = status

    def knows_budget(self, budget: Budget) -> None:
        self._budgets[budget.metadata.name] = (budget.metadata.uid, budget.status)

    def touch(self, run: RunKey) -> None:
        self._touched.add(run)

    def touch_budget(self, name: str) -> None:
        self._touched_budgets.add(name)

    def untell(self, uid: str, run: RunKey) -> None:
        """What was to be written was not: say it again."""
        self._intake.stirred = True
        self._runs.pop(uid, None)
        self._touched.add(run)

    def unsay(self, names: set[str]) -> None:
        """The same for Budgets and Reservations, by name."""
        self._intake.stirred = self._intake.stirred or bool(names)
        for name in names & self._budgets.keys():
            del self._budgets[name]
            self._touched_budgets.add(name)

    def warned_of(self, state: RunState) -> Warned:
        return self.warned.get(state.key, Warned(state.phase_at))

    # Promises that end

    def note_promise(self, action: Action) -> None:
        """A promise ended without a record: its Reservation says how."""
        promise = action.promise
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
        status = msgspec.structs.replace(known.status, state=ENDS[action.kind], forecast=None)
        return None if run is None else ReservationWrite(run, promise.name, status)

    def _outlived(self) -> list[ReservationWrite]:
        """Reservations whose Run started or ended, and whose end a crash kept from being written."""
        outlived, self._intake.outlived = self._intake.outlived, {}
        writes = []
        for (namespace, name), state in outlived.items():
            known = self._intake.reservations[namespace, name]
            run = self._intake.runs.get(known.spec.run_ref.uid)
            if run is not None:
                status = msgspec.structs.replace(known.status, state=state, forecast=None)
                writes.append(ReservationWrite(run, name, status))
        return writes

    # What is to be told now

    def refresh(self, *, at_rest: bool) -> Told:
        self._touched |= self._intake.fresh
        self._touched_budgets |= self._intake.budgets
        ended, self._ended = [*self._outlived(), *self._ended], []
        stirred, self._intake.stirred = self._intake.stirred or bool(self._touched), False
        self._unsure = self._unsure or stirred
        if at_rest and self._retells() and self._world.now >= self._retold_at + RETELL_MS:
            self._retell()
        reservations = [*ended, *(self._promises() if stirred else ())]
        notes = self._warn() if stirred else ()
        statuses = self._statuses()
        budgets = self._usage(at_rest=at_rest)
        self._touched = set()
        self._intake.fresh, self._intake.budgets = set(), set()
        return Told(
            statuses,
            tuple(reservations),
            self._abandoned() if stirred else (),
            self._proofs() if stirred else (),
            budgets,
            notes,
            stirred,
        )

    def retells_at(self) -> int | None:
        """When to look again, if nothing happens before, for those who are still to be told."""
        if self._touched_budgets:
            return self._world.now + REST_MS
        return max(self._world.now + REST_MS, self._retold_at + RETELL_MS) if self._retells() else None

    def _retells(self) -> bool:
        return self._unsure or bool(self._stale)

    def _retell(self) -> None:
        if self._unsure:
            self._stale.update((order[1:], None) for order in self._world.queue)
            self._unsure = False
        due = list(islice(self._stale, RETOLD_AT_ONCE))
        for key in due:
            del self._stale[key]
        self._touched.update(retell(self._world, due), retell_stalled(self._world))
        self._retold_at = self._world.now

    def _promises(self) -> list[ReservationWrite]:
        """Pending Reservations that do not say what is promised now; who is warned is found on the way."""
        writes: list[ReservationWrite] = []
        before, self.warned = self.warned, {}
        promised = self._promised()
        by_uid = {state.uid: state for state in self._world.runs.values()} if promised else {}
        expectations = Expectations(self._world)
        for state, promise in sorted(promised, key=lambda pair: pair[1].rank):
            self._touched.add(state.key)
            if promised_together(self._world, state, promise)[0][0] is not state:
                continue  # one Reservation for all stages that start together
            spec = spec_of(self._world, state, promise)
            if not self._says(state, promise, spec, status_of(self._world, state, promise)):
                status = status_of(self._world, state, promise, expectations.start_of(state))
                run = self._intake.runs.get(spec.run_ref.uid, state.run)
                writes.append(ReservationWrite(run, promise.name, status, spec))
            for uid, risk in risks_of(self._world, state, promise):
                for other in self._world.kin.members(by_uid[uid]):
                    known = self.warned.get(other.key, Warned(promise.made))
                    self.warned[other.key] = Warned(known.since, (*known.risks, risk))
        self._touched.update(
            key for key in before.keys() | self.warned.keys() if before.get(key) != self.warned.get(key)
        )
        return writes

    def _promised(self) -> list[tuple[RunState, Promise]]:
        if not self._world.ranks:
            return []
        return [(state, state.promise) for state in self._world.runs.values() if state.promise]

    def _says(
        self, state: RunState, promise: Promise, spec: ReservationSpec, status: ReservationStatus
    ) -> bool:
        known = self._intake.reservations.get((state.key[0], promise.name))
        return known is not None and known.spec == spec and unexpecting(known.status) == status

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

    def _warn(self) -> tuple[Note, ...]:
        """Runs in a conflict set see it at once (R11)."""
        notes: list[Note] = []
        for key, warned in sorted(self.warned.items()):
            state = self._world.runs[key]
            told = self._runs.get(state.uid) or state.run.status
            known = {risk.reservation for risk in told.risk}
            notes += [
                Note(
                    self._intake.runs.get(state.uid, state.run),
                    "AtRisk",
                    f"reservation {risk.reservation} is due at {risk.at}; "
                    f"probability of being stopped: {risk.kill_probability}",
                    self._world.now,
                    warning=True,
                )
                for risk in warned.risks
                if risk.reservation not in known
            ]
        return tuple(notes)

    def _statuses(self) -> tuple[RunWrite, ...]:
        writes: list[RunWrite] = []
        for key in sorted(self._touched):
            state = self._world.runs.get(key)
            if state is None or state.uid not in self._intake.runs or state.cancelled:
                continue
            run = self._intake.runs[state.uid]
            closing = self._intake.book.closing(state.uid)
            status = run_status(self._world, state, self.warned_of(state), closing)
            told = self._runs.get(state.uid) or run.status
            if timeless(status) != timeless(told):
                self._runs[state.uid] = status
                writes.append(RunWrite(run, status))
        return tuple(writes)

    def _usage(self, *, at_rest: bool) -> tuple[tuple[str, BudgetStatus], ...]:
        found: list[tuple[str, BudgetStatus]] = []
        self._touched_budgets &= self._world.ledger.budgets.keys()
        now = self._world.now
        due = {
            name
            for name in self._touched_budgets
            if at_rest or name not in self._budgets_at or now >= self._budgets_at[name] + BUSY_MS
        }
        self._touched_budgets -= due
        for name in sorted(due):
            status = budget_status(self._world, name)
            uid = self._world.ledger.budgets[name].metadata.uid
            known, told = self._budgets.get(name, ("", status))
            if known != uid or timeless_usage(told) != timeless_usage(status):
                self._budgets[name] = (uid, status)
                self._budgets_at[name] = now
                found.append((name, status))
        return tuple(found)


def unexpecting(status: ReservationStatus) -> ReservationStatus:
    """A status without when its Run is expected, which every minute changes a little."""
    if status.forecast is None:
        return status
    forecast = msgspec.structs.replace(status.forecast, expected_start=None)
    return msgspec.structs.replace(status, forecast=forecast)


def timeless(status: RunStatus) -> RunStatus:
    """A status without what time alone changes, or only says which endings were written."""
    funding = tuple(msgspec.structs.replace(share, gpu_hours="0") for share in status.funding)
    return msgspec.structs.replace(status, funding=funding, closing=())


def timeless_usage(status: BudgetStatus) -> BudgetStatus:
    def without(usage: tuple[msgspec.Struct, ...]) -> tuple[msgspec.Struct, ...]:
        still = {
            "used_gpu_hours": "0",
            "left_gpu_hours": None,
            "used_credits": "0",
            "left_credits": None,
            "gpu_hours_by_class": ClassUse(),
        }
        known = [field for field in still if usage and hasattr(usage[0], field)]
        return tuple(
            msgspec.structs.replace(one, **{field: still[field] for field in known}) for one in usage
        )

    return msgspec.structs.replace(
        status, envelopes=without(status.envelopes), aggregate_caps=without(status.aggregate_caps)
    )
