"""The index of promises: who is promised what, and in which order promises hold.

A promise is found where it counts: at the domains whose room it keeps and the envelopes whose money it keeps,
so that whoever asks there sees it, and in the list of all ranks. What was remembered at those places about
what is kept for whom is forgotten with every change. Runs that stand on promised slots or money are listed
too: they go first when the promise is due (R6).
"""

from bisect import bisect_left, insort

from jobtree.core.accounts.budget_index import BudgetIndex
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import Precedence, Promise
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.domain import Domain
from jobtree.core.supply.fleet import Fleet


class PromiseIndex:
    def __init__(self, runs: dict[RunKey, RunState], fleet: Fleet, ledger: BudgetIndex) -> None:
        self._runs = runs
        self._fleet = fleet
        self._ledger = ledger
        self.ranks: list[Precedence] = []  # of all promises, in the order in which they hold
        self.provisional: dict[RunKey, int] = {}  # Runs on promised slots or money, and when they began
        self._began: list[int] = []  # those instants, in order

    def set(self, run: RunState, promise: Promise | None, *, undo: bool = False) -> None:
        """Promise something else, or nothing; who else may start changes with it."""
        if run.promise is not None:
            self._index(run.promise, present=False)
        if promise is not None:
            self._index(promise, present=True)
        gone, sign = (promise, -1) if undo else (run.promise, 1)
        if gone is not None:
            self._fleet.flavor(run.flavor).reconsider_generation += sign
            for key, _ in gone.funding:
                if key in self._ledger.envelopes:
                    self._ledger.envelopes[key].count_return(sign)
        run.set_promise(promise)
        if run.provisional:
            self._fleet.invalidate_profiles_around(
                run.leases.values()
            )  # it stays no longer than until that is due

    def _index(self, promise: Promise, *, present: bool) -> None:
        domains = self._fleet.flavor(promise.flavor).domains_of_slice(promise.domain_gpus)
        for domain in domains:
            domain.set_promise(promise.run_key, promise if present else None)
        envelopes = self._ledger.envelopes
        for envelope in [envelopes[key] for key, _ in promise.funding if key in envelopes]:
            if present:
                envelope.add_promise(promise)
            else:
                envelope.remove_promise(promise.run_key)
        if present:
            insort(self.ranks, promise.precedence)
        else:
            del self.ranks[bisect_left(self.ranks, promise.precedence)]

    def invalidate_feasibility(self, run: RunState) -> None:
        """The Run was edited: what its promise needs of its domains may be something else."""
        promise = run.promise
        for domain in (
            self._fleet.flavor(promise.flavor).domains_of_slice(promise.domain_gpus) if promise else ()
        ):
            domain.invalidate_feasibility()

    def index_domain(self, domain: Domain) -> None:
        """A domain came, perhaps anew: promises may count on it already."""
        for run in self._runs.values():
            promise = run.promise
            if promise and promise.flavor == domain.flavor and domain.name in dict(promise.domain_gpus):
                domain.set_promise(run.key, promise)

    def update_provisional(self, run: RunState) -> bool:
        """Whether it is provisional now and was not, or was and is not."""
        since, before = run.provisional_since, self.provisional.get(run.key)
        if since == before:
            return False
        if before is not None:
            del self._began[bisect_left(self._began, before)]
            del self.provisional[run.key]
        if since is not None:
            self.provisional[run.key] = since
            insort(self._began, since)
        return True

    def first_provisional_after(self, precedence: Precedence | None, grain: int = 1) -> int | None:
        """When the oldest provisional work began that yields to that rank: all younger ones do too (R6).

        With a ``grain``, somewhat younger work instead, the same for many ranks.
        """
        if precedence is None:
            return None
        place = -(-bisect_left(self._began, precedence[0]) // grain) * grain
        return self._began[place] if place < len(self._began) else None
