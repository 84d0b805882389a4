"""The world: nodes, budgets, runs and open leases, with indexes kept by events.

Every event costs what it changes. It comes in here, and each part mends its own: the ground its nodes, the
strangers other people's pods, the roster its Runs, the intake leases as they are told. Planning tries changes
on the world itself and takes them back: what ``holdings`` does to leases, ``promised`` to promises and
``transitions`` to Runs each has an exact inverse, so a trial needs no copy.

What happened since the last plan, and the next one must look at, is noted here until a plan is carried out.
"""

from collections.abc import Container, Iterable

from jobtree.api.kinds.budget import Budget
from jobtree.api.kinds.lease import Lease as WireLease
from jobtree.api.kinds.policy import Policy
from jobtree.api.kinds.run import Run
from jobtree.api.kubernetes.node import Node
from jobtree.api.kubernetes.pod import Pod
from jobtree.core.accounts.budget_index import Ledger
from jobtree.core.accounts.envelope_accounts import EnvelopeState
from jobtree.core.model.actions import Action, Plan
from jobtree.core.model.gpu_lease import Lease, RunKey
from jobtree.core.model.promise import Promise
from jobtree.core.runs import carried_usage
from jobtree.core.runs.run_durations import History
from jobtree.core.runs.run_graph import Kinship
from jobtree.core.runs.run_state import Mishap, RunState
from jobtree.core.runs.start_calibration import Experience
from jobtree.core.supply.fleet import Fleet
from jobtree.core.world.date_search_generation import hope_of
from jobtree.core.world.foreign_pods import Strangers
from jobtree.core.world.lease_intake import Intake
from jobtree.core.world.node_lifecycle import Ground
from jobtree.core.world.open_leases import Holdings
from jobtree.core.world.promise_index import Promised
from jobtree.core.world.run_lifecycle import Roster
from jobtree.core.world.run_queue import Line
from jobtree.core.world.run_transitions import carry_out, look_again
from jobtree.core.world.timers import Alarms


class World:
    def __init__(self, policy: Policy | None = None, now: int = 0) -> None:
        self.policy = policy or Policy()
        self.now = now
        self.lottery_key = b""  # secret; whoever runs the world sets it
        self.beacon_values: dict[tuple[str, int], str] = {}  # public; by beacon and round, in hex
        self.fleet = Fleet()
        self.ledger = Ledger(self.policy)
        self.history = History()  # how long Runs ran, from closed leases
        self.experience = Experience()  # what came of expected starts
        self.runs: dict[RunKey, RunState] = {}
        self.kin = Kinship(self.runs)
        self.alarms = Alarms(self)
        self.line = Line(self)
        self.queue = self.line.queue
        self.holdings = Holdings(self.runs, self.fleet, self.ledger, self.alarms, self.line)
        self.held = self.holdings.held
        self.by_node = self.holdings.by_node
        self.promised = Promised(self.runs, self.fleet, self.ledger)
        self.ranks = self.promised.ranks
        self.provisional = self.promised.provisional
        self.ground = Ground(self)
        self.strangers = Strangers(self)
        self.roster = Roster(self)
        self.intake = Intake(self)
        self.attention: set[RunKey] = set()  # finished, cancelled, or on a failed node
        self._begin_notes()
        self.read = False  # whether all that is there has been read: what comes later is news
        self.hopes = 0  # counts what could bring a date to a promise without one, money apart
        self.budgets_edited_at = 0  # since then the family is as it is

    def _begin_notes(self) -> None:
        """What has happened since the last plan: nothing yet."""
        self.edited: set[RunKey] = set()  # waiting Runs whose spec changed
        self.cordons: dict[str, None] = {}  # failed nodes that are not cordoned yet
        self.diminished: set[str] = set()  # domains that lost GPUs
        self.shaken = False  # nodes or budgets changed: promises must be looked at again

    # Events: nodes and other people's pods

    def put_node(self, node: Node) -> None:
        """A node came or changed."""
        self.ground.put(node)

    def drop_node(self, name: str, uid: str = "") -> None:
        """The node is gone; with a UID, only if that very node is the one that is known."""
        self.ground.drop(name, uid)

    def put_pod(self, pod: Pod) -> None:
        """A pod came or changed; it matters if it is not Jobtree's."""
        self.strangers.put(pod)

    def drop_pod(self, uid: str) -> None:
        self.strangers.drop(uid)

    # Events: budgets, policy and the clock

    def put_budget(self, budget: Budget) -> None:
        """A budget came or was edited. Its leases count against its new limits from now on."""
        if not self.ledger.knows(budget.metadata.name):
            carried_usage.take_in_budget(self.ledger, budget)
        lifted = self.holdings.lift(budget.metadata.name)
        touched = self.ledger.put(budget, self.now)
        self._lay_back(lifted, touched)

    def drop_budget(self, name: str) -> None:
        lifted = self.holdings.lift(name)
        self._lay_back(lifted, self.ledger.drop(name, self.now))

    def _lay_back(self, lifted: tuple[list[Lease], list[Lease]], touched: list[EnvelopeState]) -> None:
        self.holdings.lay_back(lifted)
        for envelope in touched:
            self.alarms.watch_envelope(envelope)
        self.shaken = True
        if self.held:
            self.budgets_edited_at = self.now
        self.fleet.forget_horizons()
        self.gain_everywhere()

    def set_policy(self, policy: Policy) -> None:
        self.policy = policy
        for envelope in self.ledger.set_policy(policy, self.now):
            self.alarms.watch_envelope(envelope)
        self.fleet.forget_horizons()
        self.gain_everywhere()

    def gain_everywhere(self) -> None:
        """Something changed that could let anybody start, or bring a date to any promise."""
        self.hopes += 1
        self.fleet.gain_everywhere()

    def tick(self, now: int) -> None:
        """The clock moved. It never moves back: an earlier instant is taken as the present one."""
        before, self.now = self.now, max(now, self.now)
        for envelope in self.ledger.opening(before, self.now):
            self.fleet.flavor(envelope.spec.flavor).gains += 1
        self.ground.wait_out()
        self.line.ripen()

    # Events: Runs and what is promised to them

    def put_run(self, run: Run) -> RunState:
        """A Run came or changed. Under its name, but with another UID, it is another Run."""
        return self.roster.put(run)

    def drop_run(self, key: RunKey) -> None:
        """The Run's object is gone; leases it still has are closed by the next plan."""
        self.roster.drop(key)

    def finish(self, key: RunKey, *, succeeded: bool, at: int) -> None:
        """All ranks ended. The next plan closes the Run's leases at that instant."""
        if self.runs[key].phase == "Running":  # else they are those of an earlier life
            self.runs[key].outcome = ("Complete" if succeeded else "Fail", at)
            self.attention.add(key)

    def lose_rank(self, key: RunKey, mishap: Mishap) -> None:
        """A pod failed, or somebody evicted or deleted it (F5). Pods of earlier attempts do not count."""
        state = self.runs[key]
        if state.phase == "Running" and mishap.attempt == state.attempt and mishap.seat in state.seats:
            state.mishaps.append(mishap)
            self.attention.add(key)

    def lose_spare(self, key: RunKey, node: str) -> None:
        """Somebody evicted its standby pods from a node. One that takes pods gets them back."""
        known = self.fleet.nodes.get(node)
        if self.runs[key].phase == "Running" and known is not None and known.node.cordoned:
            self.runs[key].evicted[node] = None
            self.attention.add(key)

    def put_promise(self, state: RunState, promise: Promise) -> None:
        """A pending Reservation as it was written: its promise holds."""
        self.promised.set(state, promise)
        if state.phase == "Pending":
            state.phase = "Reserved"
        look_again(self, state)

    # Events: leases as they come and leave

    def put_lease(self, lease: WireLease) -> None:
        """A lease as the cluster has it, open or closed."""
        self.intake.put(lease)

    def set_aside(self, lease: Lease, end: int) -> None:
        """A closed lease is in the archive, and about to be deleted: its use is carried."""
        carried_usage.set_aside(self.ledger, self.holdings.run_of(lease), lease, end)

    def may_leave(self, lease: Lease) -> bool:
        """Whether a lease is closed, in the sums, and can be carried."""
        state = self.holdings.run_of(lease)
        return lease.name in self.intake.closed and carried_usage.has_room(self.ledger, state, lease)

    def forget_gone(self, there: Container[str]) -> None:
        """Of the leases that leave, only those that are still there can be counted twice."""
        carried_usage.keep_only(self.ledger, self.runs.values(), there)

    def drop_lease(self, lease: Lease, end: int) -> None:
        """A closed lease is gone. What it used stays in the sums."""
        carried_usage.see_gone(self.ledger, self.holdings.run_of(lease), lease)
        self.history.drop(lease, end)
        self.intake.closed.discard(lease.name)

    def forget_run(self, uid: str, leases: Iterable[str]) -> None:
        """Nothing will be told again of a Run that is gone, nor of these leases, which are closed."""
        self.strangers.forget_run(uid)
        self.intake.closed.difference_update(leases)

    # Carrying out a plan

    def commit(self, plan: Plan) -> None:
        """Apply a plan that was made from this very world."""
        self.begin(plan)
        for action in plan.actions:
            self.apply(action)
        self.conclude(plan)

    def begin(self, plan: Plan) -> None:
        """The plan has dealt with all that was known; what its actions bring is for the next one."""
        self.attention.clear()
        for name in plan.asked:
            self.fleet.flavor(name).asked = self.fleet.flavor(name).gains
        for name in plan.served:
            self.fleet.flavor(name).served = self.fleet.flavor(name).gains

    def conclude(self, plan: Plan) -> None:
        """All its actions are applied."""
        for flavor in map(self.fleet.flavor, plan.asked):
            if flavor.asked >= 0:  # nobody else wants to grow since
                flavor.asked = flavor.gains
        for flavor in map(self.fleet.flavor, plan.served):
            flavor.weighed = flavor.gains
            if flavor.served >= 0:  # nobody else waits since
                flavor.served = flavor.gains
        self._tell(plan)
        self.ground.forget_closed()
        self.ledger.amended.clear()
        self._begin_notes()
        self.read = True

    def _tell(self, plan: Plan) -> None:
        """Every Run remembers what it was told, and up to what it was considered."""
        for key, verdict in plan.verdicts.items():
            state = self.runs.get(key)
            if state is not None and state.phase == verdict.phase:  # else it is another under its name
                state.verdict = verdict
                self.fleet.flavor(state.flavor).eager.hear(key, state.stuck_like)
                if state.queued:
                    self.line.wake(state)
        for key in plan.settled:
            state = self.runs.get(key)
            if state is not None and state.shape is not None:
                state.seen = self.fleet.flavor(state.shape.flavor).gains
                state.hoped = hope_of(self, state) if state.promise and state.promise.at is None else None
                self.line.note_payable(state, plan.payable_at.get(key))
                self.line.lay_to_rest(state)

    def apply(self, action: Action) -> None:
        """Carry out one action for good."""
        carry_out(self, action)
