"""Holds all Budgets, their envelopes and caps, and the family they form."""

from bisect import bisect_right

from jobtree.api.kinds.budget import AggregateCap, Budget, Envelope
from jobtree.api.kinds.policy import Policy
from jobtree.core.accounts.envelope_accounts import CapState, EnvelopeState
from jobtree.core.accounts.family import Family
from jobtree.core.model.gpu_lease import EnvelopeKey
from jobtree.core.model.versioned_cache import Version

LAST_KEY: EnvelopeKey = ("\U0010ffff", "")  # sorts after every name


class BudgetIndex:
    def __init__(self, policy: Policy) -> None:
        self.budgets: dict[str, Budget] = {}
        self.envelopes: dict[EnvelopeKey, EnvelopeState] = {}
        self.caps: dict[str, list[CapState]] = {}  # by budget
        self.family = Family(())
        self.by_owner: dict[str, list[EnvelopeState]] = {}
        self.edited_envelopes: set[EnvelopeKey] = set()  # edited since the last plan
        # Envelopes that keep budget for Runs without a date, and whose charge or promises changed.
        self.kept_budget_changed: set[EnvelopeKey] = set()
        self.version = Version()  # replaced when an envelope comes, goes or changes its owner or limits
        # By budget: names of archived leases whose objects still exist.
        self.archived_leases: dict[str, dict[str, None]] = {}
        # By budget: envelopes with archived leases.
        self.carried_budgets: dict[str, dict[EnvelopeKey, None]] = {}
        self._known_budgets: set[str] = set()  # also those that are gone
        self._openings: list[tuple[int, EnvelopeKey]] = []
        self._policy = policy

    def has_budget(self, budget: str) -> bool:
        """Whether there is or was a budget of that name."""
        return budget in self._known_budgets

    def put(self, budget: Budget, now: int) -> list[EnvelopeState]:
        """Adds or updates a Budget; the usage of an envelope stays with its name. Returns all it touched."""
        name, spec = budget.metadata.name, budget.spec
        edited_at = now if name in self._known_budgets else 0  # a new Budget was not edited
        self._known_budgets.add(name)
        touched = self._retire(name, edited_at)
        states = [self._apply_edit(name, spec.owner, envelope, edited_at) for envelope in spec.envelopes]
        before = self.budgets.get(name)
        if before is not None and before.spec.aggregate_caps != spec.aggregate_caps:
            for state in states:  # a cap that was cut ends leases now, not in the past
                state.amended_at = edited_at
        self.caps[name] = [self._cap(name, cap, states) for cap in spec.aggregate_caps]
        self.budgets[name] = budget
        self._index()
        return list({state.key: state for state in (*touched, *states)}.values())

    def drop(self, name: str, now: int) -> list[EnvelopeState]:
        touched = self._retire(name, now)
        self.caps.pop(name, None)
        self.budgets.pop(name, None)
        self._index()
        return touched

    def set_policy(self, policy: Policy, now: int) -> list[EnvelopeState]:
        """Applies new prices. Returns the envelopes whose price changed."""
        self._policy = policy
        repriced = [
            state for state in self.envelopes.values() if state.price != self._price(state.spec.flavor)
        ]
        for state in repriced:
            state.price = self._price(state.spec.flavor)
            state.amended_at = now
            self.edited_envelopes.add(state.key)
        return repriced

    def mark_all_edited(self, now: int) -> None:
        """Has the next plan check the limits of all envelopes, as if each Budget had just been edited.

        A limit below the usage of closed leases was cut later: it ends leases from now on, not in the past.
        """
        self.edited_envelopes.update(self.envelopes)
        for state in self.envelopes.values():
            accounts = (state.account, state.lending_account, *(cap.account for cap in state.caps))
            if any(
                account.max_use is not None and account.closed_usage > account.max_use for account in accounts
            ):
                state.amended_at = now

    def envelope(self, key: EnvelopeKey, owner: str, flavor: str) -> EnvelopeState:
        """Returns the envelope of that name; if no Budget has it, a retired one that carries its usage."""
        state = self.envelopes.get(key)
        if state is None:
            spec = Envelope(name=key[1], flavor=flavor, concurrency=1)
            state = self.envelopes[key] = EnvelopeState(key[0], owner, spec, self._price(flavor))
            state.retired_at = 0
        return state

    def windows_opening(self, after: int, until: int) -> list[EnvelopeState]:
        """Envelopes whose window opens in (after, until]."""
        first, last = (bisect_right(self._openings, (at, LAST_KEY)) for at in (after, until))
        return [self.envelopes[key] for _, key in self._openings[first:last]]

    def _price(self, flavor: str) -> int:
        return self._policy.price_milli(flavor)

    def _apply_edit(self, budget: str, owner: str, spec: Envelope, now: int) -> EnvelopeState:
        """Returns the envelope with this spec. Only a change of an existing envelope is an edit."""
        key = (budget, spec.name)
        state = self.envelopes.get(key)
        if state is None:
            state = self.envelopes[key] = EnvelopeState(budget, owner, spec, self._price(spec.flavor))
            return state
        unchanged = (state.owner, state.spec) == (owner, spec)
        state.apply_edit(owner, spec, self._price(spec.flavor), state.amended_at if unchanged else now)
        self.edited_envelopes.add(key)
        return state

    def _cap(self, budget: str, spec: AggregateCap, states: list[EnvelopeState]) -> CapState:
        """Returns a cap over its envelopes, with the usage of their closed leases."""
        cap = CapState(budget, spec)
        for state in states:
            if state.spec.name in spec.envelopes:
                cap.envelopes.append(state)
                state.caps.append(cap)
                cap.account.closed_usage += state.account.closed_usage
        return cap

    def _retire(self, budget: str, now: int) -> list[EnvelopeState]:
        retired = [state for state in self.envelopes.values() if state.key[0] == budget]
        for state in retired:
            state.retired_at = now
            self.edited_envelopes.add(state.key)
        return retired

    def _index(self) -> None:
        self.version = Version()
        self.family = Family(budget.spec for budget in self.budgets.values())
        self.by_owner = {}
        for state in self.envelopes.values():
            if state.retired_at is None:
                self.by_owner.setdefault(state.owner, []).append(state)
        self._openings = sorted((state.start, state.key) for state in self.envelopes.values())
