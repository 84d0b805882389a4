"""Changes since the last plan that the next pass must consider.

The parts of the world record it here when an event reaches them. ``World`` alone reads it and clears it when
a plan is applied. Counters are kept here too: a Run or a promise that was refused is reconsidered when they
have changed.
"""

from collections.abc import Iterable

from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.supply.fleet import Fleet


class PendingChanges:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.runs_to_check: set[RunKey] = set()  # finished, cancelled, waiting for others, on a failed node
        self.edited_runs: set[RunKey] = set()  # Runs with an edit that changes what planning uses
        self.nodes_to_cordon: dict[str, None] = {}  # failed nodes that are not cordoned yet
        self.domains_that_shrank: set[str] = set()  # domains that lost GPUs
        self.promises_to_check: set[RunKey] = set()  # their nodes or payers changed
        self.recheck_all_promises = False  # objects are read for the first time, or who may pay changed
        self.sweep_due = False  # what others would have to give back is looked at for all Runs (R14)
        self.is_loaded = False  # all objects that existed at the start were read: a later one is a change
        self.date_search_generation = 0  # counts events that could give a date to any promise without one

    def reconsider_all(self) -> None:
        """Records that any waiting Run might start, and any promise without a date might get one."""
        self.date_search_generation += 1
        self._fleet.reconsider_all()

    def check_promises(self, run_keys: Iterable[RunKey]) -> None:
        """Has the next plan check these promises; until all objects are read, all promises."""
        if self.is_loaded:
            self.promises_to_check.update(run_keys)
        else:
            self.recheck_all_promises = True

    def begin_sweep(self) -> None:
        """Has the next plan consider every waiting Run, with what others would have to give back (R14)."""
        self.sweep_due = True
        for flavor in self._fleet.flavors.values():
            flavor.reconsider_generation += 1

    def record_sweep(self) -> None:
        """Records that a plan has looked at everything; the actions of this plan are changes since."""
        for flavor in self._fleet.flavors.values():
            flavor.swept_generation = flavor.reconsider_generation

    def since_sweep(self) -> bool:
        """Whether anything has changed since the last sweep that could let a waiting Run start."""
        return any(
            flavor.swept_generation != flavor.reconsider_generation for flavor in self._fleet.flavors.values()
        )

    def clear(self) -> None:
        """Forgets the changes that a plan has dealt with, when its actions are applied.

        Runs to check are cleared before: what the actions add is for the next plan.
        """
        self.edited_runs.clear()
        self.nodes_to_cordon.clear()
        self.domains_that_shrank.clear()
        self.promises_to_check.clear()
        self.recheck_all_promises = False
        self.sweep_due = False
        self.is_loaded = True
