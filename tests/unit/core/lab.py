"""A world under test: things happen, the plan is carried out, and every lease ever opened is on record."""

from dataclasses import dataclass

import msgspec

from jobtree.api.kinds.budget import Budget
from jobtree.api.kinds.lease import ClosureReason
from jobtree.api.kinds.policy import Policy
from jobtree.api.kinds.run import Run
from jobtree.api.kubernetes.node import Node
from jobtree.api.kubernetes.pod import Pod
from jobtree.api.schema.object_meta import ObjectMeta
from jobtree.api.schema.quantities import format_time
from jobtree.core.accounts.envelope_accounts import EnvelopeState
from jobtree.core.lottery.resolution_record import Record as Lottery
from jobtree.core.model.actions import Action, Plan
from jobtree.core.model.gpu_lease import GpuLease, RunKey
from jobtree.core.model.outcomes import OUTCOMES
from jobtree.core.model.promise import Promise
from jobtree.core.model.reasons import Cause
from jobtree.core.planning.run_to_rest import run_to_rest
from jobtree.core.reporting.invariants import LedgerReplay, check_invariants
from jobtree.core.reporting.reservation_forecast import ReservationForecast, forecast
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World
from tests.unit.core.build import NAMESPACE, T0

Thing = Node | Pod | Budget | Run

LOTTERY_KEY = b"the lottery key of all labs"


@dataclass
class Record:
    """One lease with its one and only ending."""

    lease: GpuLease
    end: int | None = None
    reason: ClosureReason | None = None


class Lab:
    def __init__(self, *things: Thing | list[Node], policy: Policy | None = None) -> None:
        self.world = World(policy, T0)
        self.world.lottery_key = LOTTERY_KEY
        self.records: dict[str, Record] = {}
        self.replay = LedgerReplay()
        self.admissions: dict[RunKey, list[int]] = {}  # instants of every Start
        self.lotteries: list[Lottery] = []  # every resolution, in order
        self.births = 0  # of stages' Runs
        self.story: list[str] = []  # every action, for assertion messages
        self.put(*things)

    def put(self, *things: Thing | list[Node]) -> None:
        for thing in things:
            if isinstance(thing, list):
                self.put(*thing)
            elif isinstance(thing, Node):
                self.world.put_node(thing)
            elif isinstance(thing, Pod):
                self.world.put_pod(thing)
            elif isinstance(thing, Budget):
                self.world.put_budget(thing)
            else:
                self.world.put_run(thing)

    def settle(self) -> Plan:
        """Plans and applies until nothing is left to do, and checks the invariants; the first plan."""
        plans: list[Plan] = []

        def apply(decided: Plan) -> None:
            plans.append(decided)
            self._apply_plan(decided)

        at_rest = run_to_rest(self.world, apply, creates_children=True)
        broken = check_invariants(self.world, self.replay)
        assert (at_rest, broken) == (True, []), "\n".join([*map(str, broken), *self.story])
        return plans[0]

    def _apply_plan(self, decided: Plan) -> None:
        for action in decided.actions:
            self._record(action)
        self.world.apply_plan(decided)
        created = format_time(self.world.now)
        for child in decided.children:
            meta = self._child_meta(child, created)
            self.world.put_run(msgspec.structs.replace(child, metadata=meta))

    def _child_meta(self, child: Run, created: str) -> ObjectMeta:
        """A stage's Run that is there stays the same object; one that is not is a new one."""
        key = (child.metadata.namespace, child.metadata.name)
        if key in self.world.runs:
            return self.world.runs[key].run_object.metadata
        self.births += 1
        uid = f"{self.births}-{child.metadata.name}"
        return msgspec.structs.replace(child.metadata, uid=uid, creation_timestamp=created)

    def submit(self, *runs: Run) -> Plan:
        self.put(*runs)
        return self.settle()

    def advance(self, offset: int) -> Plan:
        """Let it be so many milliseconds after T0."""
        self.world.advance_clock(T0 + offset)
        return self.settle()

    def live(self, offset: int) -> None:
        """Let time pass until then, and whatever is due on the way happen when it is due."""
        while (due := self.world.timers.next_instant()) is not None and due <= T0 + offset:
            self.advance(due - T0)
        self.advance(offset)

    def sweep(self) -> None:
        """Let time pass until the next instant of a sweep (R14)."""
        interval = self.world.policy.sweep_ms
        self.live((self.world.now // interval + 1) * interval - T0)

    def finish(self, *names: str, succeeded: bool = True) -> Plan:
        for name in names:
            self.world.finish((NAMESPACE, name), succeeded=succeeded, at=self.world.now)
        return self.settle()

    def _record(self, action: Action) -> None:
        self.story.append(tell(action))
        listed = OUTCOMES[action.kind, action.cause.reason]
        assert {lease.reason for lease in action.opens} <= {*listed.opens}, f"not a row: {tell(action)}"
        assert {closing.reason for closing in action.closes} <= {*listed.closes}, f"not a row: {tell(action)}"
        if action.kind == "Start":
            self.admissions.setdefault(action.run_key, []).append(action.at)
        if action.record is not None:
            self.lotteries.append(action.record)
        for closing in action.closes:
            record = self.records[closing.lease]
            assert record.end is None, f"{closing.lease} closes twice"
            assert closing.at >= record.lease.start, f"{closing.lease} ends before it begins"
            record.end, record.reason = closing.at, closing.reason
            self.replay.close(record.lease, closing.at)
        for lease in action.opens:
            assert lease.name not in self.records, f"{lease.name} opens twice"
            self.records[lease.name] = Record(lease)

    # Looking at it

    def __getitem__(self, name: str) -> RunState:
        return self.world.runs[NAMESPACE, name]

    def promise(self, name: str) -> Promise:
        promise = self[name].promise
        assert promise is not None, f"{name} is promised nothing"
        return promise

    def promised_at(self, name: str) -> int | None:
        """The instant (after T0) at which it will start."""
        at = self.promise(name).at
        return None if at is None else at - T0

    def forecast(self, name: str) -> ReservationForecast:
        return forecast(self.world, self[name])

    def remedies(self, name: str) -> list[tuple[str, int, list[str]]]:
        """Kind, GPUs and Runs of everything that would have to give way."""
        found = self.forecast(name).remedies
        return [(one.kind, one.gpus, [state.key[1] for state in one.runs]) for one in found]

    def phase(self, name: str) -> str:
        """Its phase; "Pending" stands for all that wait, with or without a Reservation."""
        return "Pending" if self[name].waiting else self[name].phase

    def leases(self, name: str) -> list[GpuLease]:
        """The Run's open leases, in the order in which they opened."""
        return [record.lease for record in self.history(name) if record.end is None]

    def history(self, name: str) -> list[Record]:
        return [record for record in self.records.values() if record.lease.run_key == (NAMESPACE, name)]

    def endings(self, name: str) -> list[tuple[ClosureReason | None, int]]:
        """Reason and instant (after T0) of every ending so far."""
        return [(record.reason, record.end - T0) for record in self.history(name) if record.end is not None]

    def paid(self, name: str) -> dict[str, int]:
        """GPUs of the Run by class and payer, spares not counted: ``{"Owned org-p/main": 8}``."""
        found: dict[str, int] = {}
        for lease in self.leases(name):
            if lease.role != "Spare":
                label = f"{lease.class_} {'/'.join(lease.payer)}"
                found[label] = found.get(label, 0) + lease.gpus
        return found

    def spares(self, name: str) -> int:
        return sum(lease.gpus for lease in self.leases(name) if lease.role == "Spare")

    def domains(self, name: str) -> dict[int, set[str]]:
        """Fabric domains of each group."""
        found: dict[int, set[str]] = {}
        for lease in self.leases(name):
            for on, _ in lease.slots:
                labels = self.world.fleet.nodes[on].node.labels
                found.setdefault(lease.group, set()).add(labels["fabric.domain"])
        return found

    def on(self, name: str, role: str = "Active") -> dict[str, int]:
        """GPUs of the Run in that role on each node."""
        found: dict[str, int] = {}
        for lease in self.leases(name):
            for on, mask in lease.slots if lease.role == role else ():
                found[on] = found.get(on, 0) + mask.bit_count()
        return found

    def whys(self, name: str) -> tuple[Cause, ...]:
        verdict = self[name].verdict
        return verdict.causes if verdict else ()

    def reasons(self, name: str) -> list[str]:
        return [str(why.reason) for why in self.whys(name)]

    def envelope(self, budget: str, name: str = "main") -> EnvelopeState:
        return self.world.budgets.envelopes[budget, name]


def tell(action: Action) -> str:
    """One action in a line, in milliseconds after T0."""
    ends = [f"{one.lease} ends {one.reason} at +{one.at - T0}" for one in action.closes]
    begins = [
        f"{one.name} {one.class_} {one.role} of {'/'.join(one.payer)} {dict(one.slots)}"
        for one in action.opens
    ]
    changes = ", ".join(ends + begins)
    return f"+{action.at - T0} {action.kind} {action.run_key[1]} ({action.cause.reason}): {changes}"
