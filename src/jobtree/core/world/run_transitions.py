"""Applies an action to the Run itself, tentatively or for good, and undoes it exactly.

A trial applies actions to the world and rolls them back. ``undo`` restores the state that the Run had saved,
and updates every index that depends on it. The leases of an action are opened and closed separately.
"""

from jobtree.core.model.actions import Action
from jobtree.core.model.outcomes import CLEARS_PROMISE, PHASES, REQUEUES, SETS_PROMISE
from jobtree.core.model.reasons import Reason
from jobtree.core.runs.run_state import FINISHED, RunState, SavedRunState
from jobtree.core.world.run_indexes import RunIndexes
from jobtree.core.world.run_relations import RunRelations

FAULTS = frozenset(
    {Reason.CAPACITY_LOST, Reason.UNPLACEABLE}
)  # a Run that is requeued for them was not stopped


class RunTransitions:
    def __init__(self, indexes: RunIndexes, relations: RunRelations) -> None:
        self._indexes = indexes
        self._relations = relations

    def apply(self, run: RunState, action: Action) -> None:
        """Changes the Run as the action says, without its leases."""
        phase = PHASES.get(action.kind, run.phase)
        if action.kind == "Reserve" and run.phase == "Pending":
            phase = "Reserved"
        if phase != run.phase:
            run.enter_phase(phase, action.at)
            if phase in FINISHED:
                self._relations.recheck_dependents(run.key)
        run.begin_attempt(action)
        if action.kind in REQUEUES or action.kind == "Demote":
            self._indexes.promise_index.release(run)
        if action.kind == "Start":
            run.start(action.at, action.pod_size, provisional=action.provisional)
        elif action.kind in REQUEUES:
            run.requeue(lost_lottery=action.kind == "Preempt", by_fault=action.cause.reason in FAULTS)
        elif action.kind in ("Avoid", "Exempt"):
            self._change_pauses(run, action)
        elif action.kind in SETS_PROMISE or action.kind in CLEARS_PROMISE:
            self._change_promise(run, action)
        if run.phase in FINISHED:
            run.end_provisional()
        self._indexes.reindex(run)

    def _change_pauses(self, run: RunState, action: Action) -> None:
        """Records that a Run was not drawn in a lottery, or which nodes it avoids for a pause."""
        if action.kind == "Exempt":
            run.keep_in_lottery(action.at)
            self._indexes.promise_index.invalidate_profiles(run)
            return
        run.set_refusals(action.refusals, action.at)
        self._indexes.promise_index.invalidate_feasibility(run)

    def _change_promise(self, run: RunState, action: Action) -> None:
        promise_index = self._indexes.promise_index
        promise_index.set(run, action.promise if action.kind in SETS_PROMISE else None)
        if action.kind == "Confirm":
            was_provisional = run.provisional
            run.confirm(action.at)
            if was_provisional:
                promise_index.invalidate_profiles(run)

    def undo(self, run: RunState, saved: SavedRunState) -> None:
        """The inverse of apply, for the state that the Run saved before it."""
        provisional, not_drawn_at, refusals = run.provisional, run.not_drawn_at, run.refusals
        promise_index = self._indexes.promise_index
        promise = run.restore_state(saved)
        if run.promise is not promise:
            promise_index.set(run, promise, undo=True)
        if run.refusals is not refusals:
            promise_index.invalidate_feasibility(run)
        if (run.provisional, run.not_drawn_at) != (provisional, not_drawn_at):
            promise_index.invalidate_profiles(run)
        self._indexes.reindex(run)
