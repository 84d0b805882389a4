"""The world: nodes, budgets, runs and open leases, with indexes kept by events.

Every event costs what it changes. It comes in here, and each part mends its own: the ground its nodes, the
strangers other people's pods, the roster its Runs, the intake leases as they are told. Planning tries changes
on the world itself and takes them back: what ``open_leases`` does to leases, ``promise_index`` to promises
and ``transitions`` to Runs each has an exact inverse, so a trial needs no copy.

What happened since the last plan, and the next one must look at, is noted here until a plan is carried out.
"""

from collections.abc import Container, Iterable

from jobtree.api.kinds.budget import Budget
from jobtree.api.kinds.lease import Lease as WireLease
from jobtree.api.kinds.policy import Policy
from jobtree.api.kinds.run import Run
from jobtree.api.kubernetes.node import Node
from jobtree.api.kubernetes.pod import Pod
from jobtree.core.accounts.budget_index import BudgetIndex
from jobtree.core.accounts.envelope_accounts import EnvelopeState
from jobtree.core.model.actions import Action, Plan
from jobtree.core.model.gpu_lease import GpuLease, RunKey
from jobtree.core.model.promise import Promise
from jobtree.core.runs import carried_usage
from jobtree.core.runs.run_durations import RunHistory
from jobtree.core.runs.run_graph import RunGraph
from jobtree.core.runs.run_state import RankLoss, RunState
from jobtree.core.runs.start_calibration import StartCalibration
from jobtree.core.supply.fleet import Fleet
from jobtree.core.world.date_search_generation import date_search_generation
from jobtree.core.world.foreign_pods import ForeignPods
from jobtree.core.world.lease_intake import LeaseIntake
from jobtree.core.world.node_lifecycle import NodeLifecycle
from jobtree.core.world.open_leases import OpenLeases
from jobtree.core.world.promise_index import PromiseIndex
from jobtree.core.world.run_lifecycle import RunLifecycle
from jobtree.core.world.run_queue import RunQueue
from jobtree.core.world.run_transitions import apply_action, reindex
from jobtree.core.world.timers import TimerQueue


class World:
    def __init__(self, policy: Policy | None = None, now: int = 0) -> None:
        self.policy = policy or Policy()
        self.now = now
        self.lottery_key = b""  # secret; whoever runs the world sets it
        self.beacon_values: dict[tuple[str, int], str] = {}  # public; by beacon and round, in hex
        self.fleet = Fleet()
        self.budgets = BudgetIndex(self.policy)
        self.run_history = RunHistory()  # how long Runs ran, from closed leases
        self.start_calibration = StartCalibration()  # what came of expected starts
        self.runs: dict[RunKey, RunState] = {}
        self.run_graph = RunGraph(self.runs)
        self.timers = TimerQueue(self)
        self.run_queue = RunQueue(self)
        self.queue = self.run_queue.queue
        self.open_leases = OpenLeases(self.runs, self.fleet, self.budgets, self.timers, self.run_queue)
        self.posted_leases = self.open_leases.posted
        self.leases_by_node = self.open_leases.by_node
        self.promise_index = PromiseIndex(self.runs, self.fleet, self.budgets)
        self.promise_order = self.promise_index.ranks
        self.provisional_runs = self.promise_index.provisional
        self.node_lifecycle = NodeLifecycle(self)
        self.foreign_pods = ForeignPods(self)
        self.run_lifecycle = RunLifecycle(self)
        self.lease_intake = LeaseIntake(self)
        self.runs_to_check: set[RunKey] = set()  # finished, cancelled, or on a failed node
        self._clear_changes()
        self.is_loaded = False  # whether all that is there has been read: what comes later is news
        self.date_search_generation = (
            0  # counts what could bring a date to a promise without one, money apart
        )
        self.budgets_edited_at = 0  # since then the family is as it is

    def _clear_changes(self) -> None:
        """What has happened since the last plan: nothing yet."""
        self.edited_runs: set[RunKey] = set()  # Runs with an edit that changes what planning uses
        self.nodes_to_cordon: dict[str, None] = {}  # failed nodes that are not cordoned yet
        self.domains_that_shrank: set[str] = set()  # domains that lost GPUs
        self.recheck_all_promises = False  # nodes or budgets changed: promises must be looked at again

    # Events: nodes and other people's pods

    def put_node(self, node: Node) -> None:
        """A node came or changed."""
        self.node_lifecycle.put(node)

    def drop_node(self, name: str, uid: str = "") -> None:
        """The node is gone; with a UID, only if that very node is the one that is known."""
        self.node_lifecycle.drop(name, uid)

    def put_pod(self, pod: Pod) -> None:
        """A pod came or changed; it matters if it is not Jobtree's."""
        self.foreign_pods.put(pod)

    def drop_pod(self, uid: str) -> None:
        self.foreign_pods.drop(uid)

    # Events: budgets, policy and the clock

    def put_budget(self, budget: Budget) -> None:
        """A budget came or was edited. Its leases count against its new limits from now on."""
        if not self.budgets.has_budget(budget.metadata.name):
            carried_usage.load_budget(self.budgets, budget)
        lifted = self.open_leases.unpost_budget(budget.metadata.name)
        touched = self.budgets.put(budget, self.now)
        self._repost_budget(lifted, touched)

    def drop_budget(self, name: str) -> None:
        lifted = self.open_leases.unpost_budget(name)
        self._repost_budget(lifted, self.budgets.drop(name, self.now))

    def _repost_budget(
        self, lifted: tuple[list[GpuLease], list[GpuLease]], touched: list[EnvelopeState]
    ) -> None:
        self.open_leases.repost_budget(lifted)
        for envelope in touched:
            self.timers.schedule_envelope(envelope)
        self.recheck_all_promises = True
        if self.posted_leases:
            self.budgets_edited_at = self.now
        self.fleet.invalidate_profiles()
        self.reconsider_all()

    def recheck_limits(self) -> None:
        """Call this after all objects are loaded: Budgets may have been cut before that, unseen (C10)."""
        self.budgets.mark_all_edited(self.now)
        if self.posted_leases:  # no object says which envelopes could pay when a lease began (I2)
            self.budgets_edited_at = self.now

    def set_policy(self, policy: Policy) -> None:
        self.policy = policy
        for envelope in self.budgets.set_policy(policy, self.now):
            self.timers.schedule_envelope(envelope)
        self.fleet.invalidate_profiles()
        self.reconsider_all()

    def reconsider_all(self) -> None:
        """Something changed that could let anybody start, or bring a date to any promise."""
        self.date_search_generation += 1
        self.fleet.reconsider_all()

    def advance_clock(self, now: int) -> None:
        """The clock moved. It never moves back: an earlier instant is taken as the present one."""
        before, self.now = self.now, max(now, self.now)
        for envelope in self.budgets.windows_opening(before, self.now):
            self.fleet.flavor(envelope.spec.flavor).reconsider_generation += 1
        self.node_lifecycle.fail_overdue()
        self.run_queue.process_due()

    # Events: Runs and what is promised to them

    def put_run(self, run_object: Run) -> RunState:
        """A Run came or changed. Under its name, but with another UID, it is another Run."""
        return self.run_lifecycle.put(run_object)

    def drop_run(self, key: RunKey) -> None:
        """The Run's object is gone; leases it still has are closed by the next plan."""
        self.run_lifecycle.drop(key)

    def finish(self, key: RunKey, *, succeeded: bool, at: int) -> None:
        """All ranks ended. The next plan closes the Run's leases at that instant."""
        if self.runs[key].phase == "Running":  # else they are those of an earlier life
            self.runs[key].record_outcome("Complete" if succeeded else "Fail", at)
            self.runs_to_check.add(key)

    def lose_rank(self, key: RunKey, mishap: RankLoss) -> None:
        """A pod failed, or somebody evicted or deleted it (F5). Pods of earlier attempts do not count."""
        run = self.runs[key]
        if run.phase == "Running" and mishap.attempt == run.attempt and mishap.seat in run.rank_slots:
            run.add_rank_loss(mishap)
            self.runs_to_check.add(key)

    def lose_spare(self, key: RunKey, node: str) -> None:
        """Somebody evicted its standby pods from a node. One that takes pods gets them back."""
        known = self.fleet.nodes.get(node)
        if self.runs[key].phase == "Running" and known is not None and known.node.cordoned:
            self.runs[key].add_evicted_spare_node(node)
            self.runs_to_check.add(key)

    def put_promise(self, run: RunState, promise: Promise) -> None:
        """A pending Reservation as it was written: its promise holds."""
        self.promise_index.set(run, promise)
        run.mark_reserved()
        reindex(self, run)

    # Events: leases as they come and leave

    def put_lease(self, lease: WireLease) -> None:
        """A lease as the cluster has it, open or closed."""
        self.lease_intake.put(lease)

    def carry_lease(self, lease: GpuLease, end: int) -> None:
        """A closed lease is in the archive, and about to be deleted: its use is carried."""
        carried_usage.carry_lease(self.budgets, self.open_leases.run_of(lease), lease, end)

    def can_archive(self, lease: GpuLease) -> bool:
        """Whether a lease is closed, in the sums, and can be carried."""
        run = self.open_leases.run_of(lease)
        return lease.name in self.lease_intake.closed and carried_usage.can_carry(self.budgets, run, lease)

    def forget_archived_except(self, there: Container[str]) -> None:
        """Of the leases that leave, only those that are still there can be counted twice."""
        carried_usage.forget_leases_except(self.budgets, self.runs.values(), there)

    def drop_lease(self, lease: GpuLease, end: int) -> None:
        """A closed lease is gone. What it used stays in the sums."""
        carried_usage.forget_lease(self.budgets, self.open_leases.run_of(lease), lease)
        self.run_history.drop(lease, end)
        self.lease_intake.closed.discard(lease.name)

    def forget_run(self, uid: str, leases: Iterable[str]) -> None:
        """Nothing will be told again of a Run that is gone, nor of these leases, which are closed."""
        self.foreign_pods.forget_run(uid)
        self.lease_intake.closed.difference_update(leases)

    # Carrying out a plan

    def apply_plan(self, plan: Plan) -> None:
        """Apply a plan that was made from this very world."""
        self.begin_plan(plan)
        for action in plan.actions:
            self.apply(action)
        self.finish_plan(plan)

    def begin_plan(self, plan: Plan) -> None:
        """The plan has dealt with all that was known; what its actions bring is for the next one."""
        self.runs_to_check.clear()
        for name in plan.growth_exhausted:
            self.fleet.flavor(name).growth_checked_generation = self.fleet.flavor(name).reconsider_generation
        for name in plan.queue_exhausted:
            self.fleet.flavor(name).queue_checked_generation = self.fleet.flavor(name).reconsider_generation

    def finish_plan(self, plan: Plan) -> None:
        """All its actions are applied."""
        for flavor in map(self.fleet.flavor, plan.growth_exhausted):
            if flavor.growth_checked_generation >= 0:  # nobody else wants to grow since
                flavor.growth_checked_generation = flavor.reconsider_generation
        for flavor in map(self.fleet.flavor, plan.queue_exhausted):
            flavor.inactive_checked_generation = flavor.reconsider_generation
            if flavor.queue_checked_generation >= 0:  # nobody else waits since
                flavor.queue_checked_generation = flavor.reconsider_generation
        self._record_verdicts(plan)
        self.node_lifecycle.forget_closed()
        self.budgets.edited_envelopes.clear()
        self._clear_changes()
        self.is_loaded = True

    def _record_verdicts(self, plan: Plan) -> None:
        """Every Run remembers what it was told, and up to what it was considered."""
        for key, verdict in plan.verdicts.items():
            run = self.runs.get(key)
            if run is not None and run.phase == verdict.phase:  # else it is another under its name
                run.record_verdict(verdict)
                self.fleet.flavor(run.flavor).growth_candidates.set_signature(key, run.growth_signature)
                if run.queued:
                    self.run_queue.mark_active(run)
        for key in plan.considered:
            run = self.runs.get(key)
            if run is not None and run.shape is not None:
                dateless = run.promise is not None and run.promise.at is None
                run.record_considered(
                    self.fleet.flavor(run.shape.flavor).reconsider_generation,
                    date_search_generation(self, run) if dateless else None,
                )
                self.run_queue.schedule_payer_check(run, plan.recheck_at.get(key))
                self.run_queue.mark_inactive(run)

    def apply(self, action: Action) -> None:
        """Carry out one action for good."""
        apply_action(self, action)
