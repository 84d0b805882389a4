"""The index of promises: by domain, by envelope, and in the order in which they hold.

A promise is kept with the domains and the envelopes that it reserves, and its precedence in the list of all.
Each change invalidates what those domains and envelopes have cached about promises. Provisional Runs are
listed too: they are reclaimed when the promise is due whose slots or budget they use (R6).
"""

from bisect import bisect_left, insort

import msgspec

from jobtree.core.accounts.budget_index import BudgetIndex
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import Precedence, Promise
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.domain import Domain
from jobtree.core.supply.fleet import Fleet


class PromiseIndex:
    def __init__(self, runs: dict[RunKey, RunState], fleet: Fleet, budgets: BudgetIndex) -> None:
        self._runs = runs
        self._fleet = fleet
        self._budgets = budgets
        self.ranks: list[Precedence] = []  # of all promises, in order
        self.provisional: dict[RunKey, int] = {}  # provisional Runs, and since when
        self._provisional_since: list[int] = []  # those instants, in order
        # Of each Run that was told of recalls, by the Run that it stops for: since when it runs, and its end.
        self._recalls: dict[RunKey, dict[RunKey, tuple[int, int]]] = {}

    def set(self, run: RunState, promise: Promise | None, *, undo: bool = False) -> None:
        """Replaces the promise of a Run; others may use what the old promise reserved."""
        if run.promise is not None:
            self._index(run.promise, present=False)
        if promise is not None:
            self._index(promise, present=True)
        released, sign = (promise, -1) if undo else (run.promise, 1)
        if released is not None:
            self._fleet.flavor(run.flavor).reconsider_generation += sign
            for key, _ in released.funding:
                if key in self._budgets.envelopes:
                    self._budgets.envelopes[key].count_return(sign)
        run.set_promise(promise)
        if run.leases:  # their end depends on it
            self.invalidate_profiles(run)

    def release(self, run: RunState) -> None:
        """Counts a promise by itself again that leases held: these end, or become opportunistic."""
        if run.promise is not None and run.promise.held:
            self.set(run, msgspec.structs.replace(run.promise, held=False))

    def _index(self, promise: Promise, *, present: bool) -> None:
        domains = self._fleet.flavor(promise.flavor).domains_of_slice(promise.domain_gpus)
        for domain in domains if not promise.held else ():
            domain.set_promise(promise.run_key, promise if present else None)
        envelopes = self._budgets.envelopes
        if promise.at is None:
            self._budgets.kept_budget_changed.update(key for key, _ in promise.funding)
        for envelope in [envelopes[key] for key, _ in promise.funding if key in envelopes]:
            if present:
                envelope.add_promise(promise, self._runs[promise.run_key].owner)
            else:
                envelope.remove_promise(promise.run_key)
        if promise.at is not None:
            for run_key, since in promise.recalls:
                self._index_recall(run_key, promise.run_key, (since, promise.at) if present else None)
        if present:
            insort(self.ranks, promise.precedence)
        else:
            del self.ranks[bisect_left(self.ranks, promise.precedence)]

    def _index_recall(self, run_key: RunKey, by: RunKey, recall: tuple[int, int] | None) -> None:
        """Sets or clears what a Run was told of a recall by another."""
        recalls = self._recalls.setdefault(run_key, {})
        if recall is None:
            del recalls[by]
        else:
            recalls[by] = recall
        if not recalls:
            del self._recalls[run_key]
        if run_key in self._runs:
            self.invalidate_profiles(self._runs[run_key])

    def recalled_at(self, run: RunState) -> int | None:
        """Returns when the present admission of a Run stops for a recall; None: it was told of none (C11)."""
        recalls = self._recalls.get(run.key, {}).values()
        return min((until for since, until in recalls if since == run.since), default=None)

    def invalidate_profiles(self, run: RunState) -> None:
        """Invalidates the availability profiles that count on how long the Run holds its leases."""
        self._fleet.invalidate_profiles_around(run.leases.values())

    def invalidate_feasibility(self, run: RunState) -> None:
        """Invalidates what domains have cached about the promise of a Run that was edited."""
        promise = run.promise
        if promise is not None:
            for domain in self._fleet.flavor(promise.flavor).domains_of_slice(promise.domain_gpus):
                domain.invalidate_feasibility()

    def index_domain(self, domain: Domain) -> None:
        """Adds the promises that count on a domain which has just been added."""
        for run in self._runs.values():
            promise = run.promise
            if promise is None or promise.held or promise.flavor != domain.flavor:
                continue
            if domain.name in dict(promise.domain_gpus):
                domain.set_promise(run.key, promise)

    def update_provisional(self, run: RunState) -> bool:
        """Updates the list of provisional Runs, and returns whether that changed anything."""
        since, before = run.provisional_since, self.provisional.get(run.key)
        if since == before:
            return False
        if before is not None:
            del self._provisional_since[bisect_left(self._provisional_since, before)]
            del self.provisional[run.key]
        if since is not None:
            self.provisional[run.key] = since
            insort(self._provisional_since, since)
        return True

    def first_provisional_after(self, precedence: Precedence | None, grain: int = 1) -> int | None:
        """Returns the earliest start of provisional work that a promise of this precedence can reclaim (R6).

        All later provisional work can be reclaimed, too. With a ``grain``, the result is the start of
        somewhat later work, and is the same for many precedences.
        """
        if precedence is None:
            return None
        index = -(-bisect_left(self._provisional_since, precedence[0]) // grain) * grain
        return self._provisional_since[index] if index < len(self._provisional_since) else None
