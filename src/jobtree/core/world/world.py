"""The state that a pass plans on, and the events that change it: nodes, Budgets, Runs, leases, promises.

Each event costs what it changes. It arrives here, and ``World`` hands it to the part that is concerned: a
part gets in its constructor what it uses, and no part uses ``World``. The parts record what the next pass
must look at in ``PendingChanges``, which ``World`` clears when a plan is applied.

A trial changes the world and rolls it back: opening and closing a lease (``open_leases``), setting a promise
(``promise_index``) and changing a Run (``run_transitions``) each have an exact inverse, so no copy is needed.
"""

from collections.abc import Container, Iterable

import msgspec

from jobtree.api.kinds.budget import Budget, BudgetSpec
from jobtree.api.kinds.lease import Lease as WireLease
from jobtree.api.kinds.policy import Policy
from jobtree.api.kinds.run import Run
from jobtree.api.kubernetes.node import Node
from jobtree.api.kubernetes.pod import Pod
from jobtree.core.accounts.budget_index import BudgetIndex
from jobtree.core.accounts.envelope_accounts import EnvelopeState
from jobtree.core.accounts.payers import payers_of_owner
from jobtree.core.model.actions import Action, Plan
from jobtree.core.model.gpu_lease import GpuLease, RunKey, lease_number
from jobtree.core.model.outcomes import CLEARS_PROMISE, NEW_ATTEMPT_KINDS, REQUEUES
from jobtree.core.model.promise import Promise
from jobtree.core.model.refusals import RefusedPods
from jobtree.core.runs import carried_usage
from jobtree.core.runs.run_durations import RunHistory
from jobtree.core.runs.run_graph import RunGraph
from jobtree.core.runs.run_state import DateSearchGeneration, RankLoss, RunState
from jobtree.core.runs.start_calibration import StartCalibration
from jobtree.core.supply.fleet import Fleet
from jobtree.core.world.foreign_pods import ForeignPods
from jobtree.core.world.idle_budget import IdleBudget
from jobtree.core.world.lease_intake import LeaseIntake
from jobtree.core.world.node_lifecycle import NodeLifecycle
from jobtree.core.world.open_leases import OpenLeases
from jobtree.core.world.pending_changes import PendingChanges
from jobtree.core.world.promise_index import PromiseIndex
from jobtree.core.world.refused_runs import RefusedRuns
from jobtree.core.world.run_indexes import RunIndexes
from jobtree.core.world.run_lifecycle import RunLifecycle
from jobtree.core.world.run_queue import RunQueue
from jobtree.core.world.run_relations import RunRelations
from jobtree.core.world.run_transitions import RunTransitions
from jobtree.core.world.timers import TimerQueue


class World:
    def __init__(self, policy: Policy | None = None, now: int = 0) -> None:
        self.policy = policy or Policy()
        self.lottery_key = b""  # secret; the manager sets it
        self.beacon_values: dict[tuple[str, int], str] = {}  # public; by beacon and round, in hex
        self.budgets_edited_at = 0  # when a Budget last changed while leases were open
        self.fleet = Fleet(self.policy.node_grace_ms)
        self.budgets = BudgetIndex(self.policy)
        self.run_history = RunHistory()
        self.start_calibration = StartCalibration()
        self.runs: dict[RunKey, RunState] = {}
        self.run_graph = RunGraph(self.runs)
        self._changes = PendingChanges(self.fleet)
        self.runs_to_check = self._changes.runs_to_check
        self.edited_runs = self._changes.edited_runs
        self.nodes_to_cordon = self._changes.nodes_to_cordon
        self.domains_that_shrank = self._changes.domains_that_shrank
        self.timers = TimerQueue(now, self.runs, self.run_graph, self.fleet, self.budgets)
        self.run_queue = RunQueue(self.runs, self.fleet, self.timers, self._changes)
        self.queue = self.run_queue.queue
        self.open_leases = OpenLeases(self.runs, self.fleet, self.budgets, self.timers, self.run_queue)
        self.idle_budget = IdleBudget(self.runs, self.budgets, self.timers, self.policy.keep_idle_ms)
        self.posted_leases = self.open_leases.posted
        self.leases_by_node = self.open_leases.by_node
        self.promise_index = PromiseIndex(self.runs, self.fleet, self.budgets)
        self.promise_order = self.promise_index.ranks
        self.provisional_runs = self.promise_index.provisional
        self.node_lifecycle = NodeLifecycle(self.fleet, self.open_leases, self.timers, self._changes)
        self.foreign_pods = ForeignPods(self.fleet, self._changes)
        indexes = RunIndexes(
            self.timers, self.run_queue, self.open_leases, self.promise_index, self.start_calibration
        )
        self._indexes = indexes
        self.lease_intake = LeaseIntake(
            self.fleet, indexes, self.node_lifecycle, self.foreign_pods, self.run_history
        )
        relations = RunRelations(self.run_graph, indexes, self._changes)
        self.run_transitions = RunTransitions(indexes, relations)
        self.refused_runs = RefusedRuns(self.runs, self.fleet, indexes, self._changes)
        self.run_lifecycle = RunLifecycle(
            self.runs, indexes, relations, self.lease_intake, self._changes, self.refused_runs
        )

    @property
    def now(self) -> int:
        """The present instant."""
        return self.timers.now

    @property
    def date_search_generation(self) -> int:
        """Counts the events that could give a date to any promise without one."""
        return self._changes.date_search_generation

    @property
    def recheck_all_promises(self) -> bool:
        """Whether any promise may have to move: objects were just read, or others may pay now."""
        return self._changes.recheck_all_promises

    @property
    def promises_to_check(self) -> frozenset[RunKey]:
        """Runs whose promises may have to move, since their nodes or payers changed since the last plan."""
        return frozenset(self._changes.promises_to_check)

    @property
    def sweep_due(self) -> bool:
        """Whether the next plan looks at what others would have to give back for every waiting Run (R14)."""
        return self._changes.sweep_due

    def considers_recalls(self, run: RunState) -> bool:
        """Whether a plan looks at what others would have to give back for this Run (R14).

        It does so when the Run arrives, which then has no Reservation, or was edited, and in a sweep.
        """
        return run.promise is None or self.sweep_due or run.key in self.edited_runs

    # Events: nodes and foreign pods

    def put_node(self, node: Node) -> None:
        """Adds or updates a node."""
        domain = self.node_lifecycle.put(node)
        if domain is not None:
            if len(domain.nodes) == 1:
                self.promise_index.index_domain(domain)
            self.foreign_pods.add_to_node(node.name)

    def drop_node(self, name: str, uid: str = "") -> None:
        """Removes a deleted node; with a UID, only if the present node of that name has it."""
        self.node_lifecycle.drop(name, uid)

    def put_pod(self, pod: Pod) -> None:
        """Adds or updates a pod; pods of Jobtree's own Runs are ignored."""
        self.foreign_pods.put(pod)

    def drop_pod(self, uid: str) -> None:
        self.foreign_pods.drop(uid)

    # Events: Budgets, policy and the clock

    def put_budget(self, budget: Budget) -> None:
        """Adds or updates a Budget; its leases count against its new limits from now on."""
        if not self.budgets.has_budget(budget.metadata.name):
            carried_usage.load_budget(self.budgets, budget)
        unposted = self.open_leases.unpost_budget(budget.metadata.name)
        before = self.budgets.budgets.get(budget.metadata.name)
        touched = self.budgets.put(budget, self.now)
        self._repost_budget(unposted, touched)
        if before is not None and differ_in_width_only(before.spec, budget.spec):
            self._reconsider_payers(touched)
        else:
            self._reconsider_all_payers()

    def drop_budget(self, name: str) -> None:
        unposted = self.open_leases.unpost_budget(name)
        self._repost_budget(unposted, self.budgets.drop(name, self.now))
        self._reconsider_all_payers()

    def _repost_budget(
        self, unposted: tuple[list[GpuLease], list[GpuLease]], touched: list[EnvelopeState]
    ) -> None:
        self.open_leases.repost_budget(unposted)
        for envelope in touched:
            self.timers.schedule_envelope(envelope)
        self.budgets.kept_budget_changed.update(envelope.key for envelope in touched)
        if self.posted_leases:
            self.budgets_edited_at = self.now

    def _reconsider_payers(self, envelopes: list[EnvelopeState]) -> None:
        """Has the next plan check the promises that these envelopes pay for, and Runs that they may pay."""
        for envelope in envelopes:
            self._changes.check_promises(envelope.promises)
            self.fleet.flavor(envelope.spec.flavor).reconsider_generation += 1
            envelope.count_return(1)

    def _reconsider_all_payers(self) -> None:
        """Has the next plan check all promises and waiting Runs: others may pay, or at other times."""
        self._changes.recheck_all_promises = True
        self.fleet.invalidate_profiles()
        self._changes.reconsider_all()

    def recheck_limits(self) -> None:
        """Has the next plan check all limits, after all objects are loaded: a Budget may be cut (C10)."""
        self.budgets.mark_all_edited(self.now)
        if self.posted_leases:  # no object says which envelopes could pay when a lease began (I2)
            self.budgets_edited_at = self.now

    def set_policy(self, policy: Policy) -> None:
        self.policy = policy
        self.fleet.node_grace_ms = policy.node_grace_ms
        self.idle_budget.set_keep_idle(policy.keep_idle_ms)
        for envelope in self.budgets.set_policy(policy, self.now):
            self.timers.schedule_envelope(envelope)
        self.fleet.invalidate_profiles()
        self._changes.reconsider_all()

    def advance_clock(self, now: int) -> None:
        """Advances the clock; an earlier instant than the present one changes nothing."""
        self.idle_budget.update()
        before, self.timers.now = self.now, max(now, self.now)
        for envelope in self.budgets.windows_opening(before, self.now):
            self.budgets.kept_budget_changed.add(envelope.key)
            self.fleet.flavor(envelope.spec.flavor).reconsider_generation += 1
        self.node_lifecycle.fail_overdue()
        self.run_queue.process_due()
        if self.timers.take_sweep():
            self._changes.begin_sweep()
        self.refused_runs.process_due()

    # Events: Runs and their promises

    def put_run(self, run_object: Run) -> RunState:
        """Adds or updates a Run; one with another UID is another Run of the same name."""
        return self.run_lifecycle.put(run_object)

    def drop_run(self, key: RunKey) -> None:
        """Removes a deleted Run; the next plan closes the leases that it still has."""
        self.run_lifecycle.drop(key)

    def free_name(self, key: RunKey) -> None:
        """Records that the cluster has no Run of this name any more: a tree may need it for a stage (H3)."""
        for run in self.run_graph.affected_by(key):
            self.runs_to_check.add(run.key)

    def finish(self, key: RunKey, *, succeeded: bool, at: int) -> None:
        """Records that all ranks ended; the next plan closes the Run's leases at that instant."""
        if self.runs[key].phase == "Running":  # otherwise they are ranks of an earlier attempt
            self.runs[key].record_outcome("Complete" if succeeded else "Fail", at)
            self.runs_to_check.add(key)

    def lose_rank(self, key: RunKey, loss: RankLoss) -> None:
        """Records that a pod failed, or was evicted or deleted (F5); ignores pods of earlier attempts."""
        run = self.runs[key]
        if run.phase == "Running" and loss.attempt == run.attempt and loss.group_rank in run.rank_slots:
            run.add_rank_loss(loss)
            self.runs_to_check.add(key)

    def refuse_pods(self, key: RunKey, attempt: int, refused: Iterable[RefusedPods]) -> None:
        """Records which pods of a running Run are refused now, by whom and why (N3); none: not any more."""
        run = self.runs[key]
        if run.phase == "Running" and attempt == run.attempt:
            self.refused_runs.report(run, refused, self.policy.placement_grace_ms)

    def lose_spare(self, key: RunKey, node: str) -> None:
        """Records that spares were evicted from a cordoned node; elsewhere their pods are recreated."""
        node_slots = self.fleet.nodes.get(node)
        if self.runs[key].phase == "Running" and node_slots is not None and node_slots.node.cordoned:
            self.runs[key].add_evicted_spare_node(node)
            self.runs_to_check.add(key)

    def put_promise(self, run: RunState, promise: Promise) -> None:
        """Loads the promise of a pending Reservation."""
        self.promise_index.set(run, promise)
        run.mark_reserved()
        self._indexes.reindex(run)

    def exempt_survivor(self, run: RunState, drawn_at: int) -> None:
        """Loads that a Run, with its gang, had a ticket in a lottery then and did not lose (R4)."""
        for member in self.run_graph.members(run):
            if member.since is not None and member.since < drawn_at > (member.not_drawn_at or 0):
                member.keep_in_lottery(drawn_at)
                self.promise_index.invalidate_profiles(member)

    # Events: Lease objects

    def hold_lease(self, lease: GpuLease) -> None:
        """Adds an open lease of a Run that planning leaves out; its pods are not foreign."""
        self.foreign_pods.register_run(lease.uid, lease.run_key[0])
        self.open_leases.hold(lease)

    def put_lease(self, lease_object: WireLease) -> None:
        """Loads a lease, open or closed."""
        self.lease_intake.put(lease_object)

    def carry_lease(self, lease: GpuLease, end: int) -> None:
        """Adds a closed lease that is archived, and will be deleted, to the carried usage."""
        carried_usage.carry_lease(self.budgets, self.open_leases.run_of(lease), lease, end)

    def can_archive(self, lease: GpuLease) -> bool:
        """Whether the usage of a closed lease is added, and the carried usage can take it over."""
        run = self.open_leases.run_of(lease)
        return lease.name in self.lease_intake.closed and carried_usage.can_carry(self.budgets, run, lease)

    def forget_archived_except(self, present: Container[str]) -> None:
        """Forgets the names of archived leases whose objects are gone."""
        carried_usage.forget_leases_except(self.budgets, self.runs.values(), present)

    def drop_lease(self, lease: GpuLease, end: int) -> None:
        """Removes a closed lease whose object is gone; its usage stays."""
        carried_usage.forget_lease(self.budgets, self.open_leases.run_of(lease), lease)
        self.run_history.drop(lease, end)
        self.lease_intake.closed.discard(lease.name)

    def forget_run(self, uid: str, leases: Iterable[str]) -> None:
        """Forgets a Run that is gone, and its closed leases; no object of them can arrive any more."""
        self.foreign_pods.forget_run(uid)
        self.lease_intake.closed.difference_update(leases)

    # Applying a plan

    def apply_plan(self, plan: Plan) -> None:
        """Applies a plan that was made from this world."""
        self.begin_plan(plan)
        for action in plan.actions:
            self.apply(action)
        self.finish_plan(plan)

    def begin_plan(self, plan: Plan) -> None:
        """Forgets the Runs to check; those that the plan's actions add are for the next plan."""
        self.runs_to_check.clear()
        if self.sweep_due:
            self._changes.record_sweep()
        for flavor in map(self.fleet.flavor, plan.growth_exhausted):
            flavor.growth_checked_generation = flavor.reconsider_generation
        for flavor in map(self.fleet.flavor, plan.queue_exhausted):
            flavor.queue_checked_generation = flavor.reconsider_generation

    def apply(self, action: Action) -> None:
        """Applies one action for good."""
        run = self.runs[action.run_key]
        self.run_transitions.apply(run, action)
        if action.kind == "Start":
            self.start_calibration.record_start(action.run_key, action.at)
        elif action.kind in REQUEUES:
            self.start_calibration.undo_start(action.run_key, action.at)
        self._apply_leases(run, action)
        if action.kind in NEW_ATTEMPT_KINDS or run.phase != "Running":
            run.clear_rank_losses()
        if action.kind in ("Start", "Demote") or action.kind in CLEARS_PROMISE:
            self.run_queue.schedule_recall(run)
            self.run_queue.update_growth(run)  # interim work does not grow
        if action.kind == "Avoid":
            self.refused_runs.schedule(run)
        if action.kind == "Cancel":
            self.run_lifecycle.drop(action.run_key)

    def _apply_leases(self, run: RunState, action: Action) -> None:
        for closing in action.closes:
            lease = self.open_leases.close(closing.lease, closing.at).lease
            self.run_history.close(lease, closing.at, closing.reason)
            self.lease_intake.closed.add(closing.lease)
        for lease in action.opens:
            self.open_leases.open(lease)
            run.raise_leases_opened(lease_number(lease))
        if action.closes or action.opens or action.kind in ("Start", "Restart"):
            run.count_decision()
            self.run_queue.leases_changed(run)
        if action.closes:
            run.clear_evicted_spare_nodes()

    def finish_plan(self, plan: Plan) -> None:
        """Records what the plan dealt with, when all its actions are applied."""
        for flavor in map(self.fleet.flavor, plan.growth_exhausted):
            if flavor.growth_checked_generation >= 0:  # otherwise the actions added a growth candidate
                flavor.growth_checked_generation = flavor.reconsider_generation
        for flavor in map(self.fleet.flavor, plan.queue_exhausted):
            flavor.inactive_checked_generation = flavor.reconsider_generation
            if flavor.queue_checked_generation >= 0:  # otherwise the actions added a Run to the queue
                flavor.queue_checked_generation = flavor.reconsider_generation
        self._record_verdicts(plan)
        self._record_considered(plan)
        self.node_lifecycle.forget_closed()
        self.budgets.edited_envelopes.clear()
        self._changes.clear()
        self.idle_budget.update()
        self._schedule_sweep()

    def _schedule_sweep(self) -> None:
        """Schedules a sweep at the next multiple of the interval, if Runs wait and anything has changed.

        A world that is loaded again cannot know that nothing has changed, and sweeps once more.
        """
        interval_ms = self.policy.sweep_ms
        wanted = self.queue and self._changes.since_sweep()
        self.timers.schedule_sweep((self.now // interval_ms + 1) * interval_ms if wanted else None)

    def _record_verdicts(self, plan: Plan) -> None:
        for key, verdict in plan.verdicts.items():
            run = self.runs.get(key)
            if run is not None and run.phase == verdict.phase:  # otherwise it is another Run of that name
                run.record_verdict(verdict)
                self.fleet.flavor(run.flavor).growth_candidates.set_signature(key, run.growth_signature)
                if run.queued:
                    self.run_queue.mark_active(run)

    def _record_considered(self, plan: Plan) -> None:
        """Has later passes skip the Runs that this plan considered, until something changes for them."""
        for key in plan.considered:
            run = self.runs.get(key)
            if run is not None and run.shape is not None:
                is_dateless = run.promise is not None and run.promise.at is None
                run.record_considered(
                    self.fleet.flavor(run.shape.flavor).reconsider_generation,
                    self._date_generation_of(run) if is_dateless else None,
                )
                self.run_queue.schedule_payer_check(run, plan.recheck_at.get(key))
                self.run_queue.mark_inactive(run)

    # What waiting Runs depend on

    def has_edited_payers(self, owner: str, flavor: str, sponsors: tuple[str, ...]) -> bool:
        """Whether an envelope that may pay for such Runs was edited since the last plan."""
        edited = self.budgets.edited_envelopes
        return bool(edited) and not edited.isdisjoint(
            payers_of_owner(self.budgets, owner, flavor, sponsors).classes
        )

    def should_search_date(self, run: RunState) -> bool:
        """Whether an event could have given a date to the Run's promise, which has none (R9).

        Such events are: a node or a Budget changes, a foreign pod goes, a running Run is edited, or charge
        returns to one of the Run's payers. They are counted, and each search for a date records the count.
        """
        promise = run.promise
        if promise is None or promise.at is not None:
            return False
        if promise.beyond_depth:
            return not self.is_beyond_depth(run)
        return run.date_search_generation != self._date_generation_of(run)

    def is_beyond_depth(self, run: RunState) -> bool:
        """Whether so many funded Runs wait before this one that it gets no date yet (R13)."""
        return self.run_queue.line.is_beyond(run, self.policy.promise_depth)

    def _date_generation_of(self, run: RunState) -> DateSearchGeneration:
        payers = payers_of_owner(self.budgets, run.owner, run.flavor, run.sponsors)
        returns = sum([candidate.envelope.reconsider_generation for candidate in payers.candidates])
        return self._changes.date_search_generation, returns


def differ_in_width_only(before: BudgetSpec, after: BudgetSpec) -> bool:
    """Whether two versions of a Budget differ at most in the GPUs that it allows at once.

    Then the same envelopes may pay for the same Runs, and leases end when they did.
    """
    return _without_widths(before) == _without_widths(after)


def _without_widths(spec: BudgetSpec) -> BudgetSpec:
    envelopes = tuple(msgspec.structs.replace(envelope, concurrency=1) for envelope in spec.envelopes)
    caps = tuple(msgspec.structs.replace(cap, max_concurrency=None) for cap in spec.aggregate_caps)
    return msgspec.structs.replace(spec, envelopes=envelopes, aggregate_caps=caps)
