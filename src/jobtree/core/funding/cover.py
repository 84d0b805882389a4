"""Cover: how much each payer of a Run can pay (C4–C6)."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

from jobtree.api.schema.quantities import HOUR, MILLI
from jobtree.core.accounts.envelope_accounts import FOREVER, Account, EnvelopeState, credits_used
from jobtree.core.funding.reserved_budget import flows_through, kept_back, spare_under
from jobtree.core.funding.reserved_hours import promises_on, use_limits
from jobtree.core.funding.shared_limits import lent_pool, quota_pools
from jobtree.core.model.gpu_lease import EnvelopeKey
from jobtree.core.model.reasons import Reason, Why
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.node_slots import Selector
from jobtree.core.world.payer_candidates import Candidate, Candidates, candidates, sponsored
from jobtree.core.world.world import World

KEPT = " beside promises to others"  # the same limit less what is kept for older Runs (C12)
Limit = tuple[Reason, str, int]  # why it binds, its name, the GPUs it leaves
Purses = dict[Selector, int]  # pods that can be paid for, by the selector of those who pay


def payable(world: World, state: RunState, candidate: Candidate, rate: int, at: int) -> int:
    """GPUs at that rate which the candidate could pay for at that instant, wherever they are (C4)."""
    envelope = candidate.envelope
    account = envelope.account
    if account.free_charge() < rate or not envelope.open_at(at):
        return 0
    if not (envelope.limited or state.quotas or candidate.class_ == "Borrowed"):
        gpus, left = share_of(account.free_charge(), rate), account.free_use(at)
        return gpus if left is None else min(gpus, share_of(left, rate * commitment(state, envelope, at)))
    return min([gpus for _, _, gpus in limits(world, state, candidate, rate, at)])


def affordable_from(world: World, state: RunState) -> int | None:
    """When somebody has the hours for more of a Run's unpaid GPUs than now, by time alone; None: never.

    The less time it may still run, the fewer hours it commits (C5).
    """
    end = state.known_end
    if end is None or not state.unpaid:
        return None
    instants = [
        _rises_at(world, state, one, end)
        for one in candidates(world, state)
        if state.quotas or one.class_ == "Borrowed" or not one.envelope.by_charge_alone
    ]
    return min((at for at in instants if at is not None), default=None)


def _rises_at(world: World, state: RunState, candidate: Candidate, end: int) -> int | None:
    """When one payer's hours suffice for another pod: between two changes that only rises, or only falls."""
    wanted = state.unpaid // state.pod_size
    instants = range(world.now, min(end, candidate.envelope.end))

    def pods(at: int) -> int:
        return min(wanted, payable(world, state, candidate, MILLI, at) // state.pod_size)

    have = pods(world.now)
    if not instants or pods(instants[-1]) <= have:
        return None
    return instants[bisect_right(instants, have, key=pods)]


def limits(world: World, state: RunState, candidate: Candidate, rate: int, at: int) -> list[Limit]:
    """Each limit that binds the candidate: its reason, its name, and the GPUs it leaves."""
    envelope = candidate.envelope
    span, rank = commitment(state, envelope, at), state.standing(at)
    cost = rate * span
    found = _account(envelope.account, Reason.CONCURRENCY_EXHAUSTED, rate, cost, at)
    kept = kept_back(world, state, envelope, at)
    if kept is not None and kept < envelope.account.free_charge():
        found.append((Reason.CONCURRENCY_EXHAUSTED, envelope.label + KEPT, share_of(kept, rate)))
    if envelope.max_credits is not None:
        left = envelope.max_credits - credits_used([envelope], at)
        found.append((Reason.CREDITS_EXHAUSTED, envelope.label, share_of(left, cost * envelope.price)))
    if candidate.class_ == "Borrowed":
        found += _account(envelope.lent, Reason.BORROW_LIMIT, rate, cost, at)
        found += _lent(world, state, envelope, rate, at)
    for label, gpus in use_limits(state, envelope, rank, rate, at, span):
        own = Reason.CREDITS_EXHAUSTED if envelope.account.max_use is None else Reason.HOURS_EXHAUSTED
        found.append((own if label == envelope.label else Reason.AGGREGATE_CAP, label, gpus))
    for cap in envelope.caps:
        found += _account(cap.account, Reason.AGGREGATE_CAP, rate, cost, at)
        if cap.account.max_charge < FOREVER and promises_on(cap.envelopes, state.key, rank):
            kept = spare_under(world, cap, at, state.certain_end(at), state.key, rank)
            found.append((Reason.AGGREGATE_CAP, cap.account.label, share_of(max(0, kept), rate)))
        if cap.max_credits is not None:
            left = cap.max_credits - credits_used(cap.envelopes, at)
            found.append((Reason.AGGREGATE_CAP, cap.account.label, share_of(left, cost * envelope.price)))
    for quota in state.quotas:
        found += _account(quota, Reason.TREE_QUOTA, rate, cost, at)
    return found + _promised_quotas(world, state, rate, at, span)


def _promised_quotas(world: World, state: RunState, rate: int, at: int, span: int) -> list[Limit]:
    """What quotas of its trees leave behind promises to other stages."""
    return [
        (Reason.TREE_QUOTA, pool.account.label + KEPT, gpus)
        for pool in quota_pools(world, state, state.standing(at))
        if pool.claims
        for gpus in pool.gpus(rate, at, state.certain_end(at), span)
    ]


def _lent(world: World, state: RunState, envelope: EnvelopeState, rate: int, at: int) -> Iterator[Limit]:
    """What may be lent behind promises that borrow, and what the Run may borrow."""
    span, shape = commitment(state, envelope, at), state.shape
    pool = lent_pool(world, envelope, state.key, state.standing(at)) if envelope.promises else None
    if pool is not None and not flows_through(world, state, (one for one, _ in pool.claims), at):
        for gpus in pool.gpus(rate, at, state.certain_end(at), span) if pool.claims else ():
            yield Reason.BORROW_LIMIT, envelope.lent.label + KEPT, gpus
    if shape is not None and shape.max_borrow is not None:
        yield Reason.BORROW_LIMIT, "funding.maxBorrowGPUs", max(0, shape.max_borrow - state.borrowed)


def commitment(state: RunState, envelope: EnvelopeState, at: int) -> int:
    """How long the Run binds the hours: its remaining time within the window, else an hour (C5)."""
    shape = state.shape
    if shape is None or shape.max_duration is None:
        return HOUR
    began = at if state.since is None else state.since
    return max(0, min(began + shape.max_duration, envelope.end) - at)


def _account(account: Account, reason: Reason, rate: int, cost: int, at: int) -> list[Limit]:
    """What an account leaves, in GPUs: by concurrency and, at that cost of hours each, by GPU-hours."""
    found = [(reason, account.label, share_of(account.free_charge(), rate))]
    left = account.free_use(at)
    if left is not None:
        hours = Reason.HOURS_EXHAUSTED if reason is Reason.CONCURRENCY_EXHAUSTED else reason
        found.append((hours, account.label, share_of(left, cost)))
    return found


def share_of(left: int, cost: int) -> int:
    if left <= 0:
        return FOREVER if cost == 0 and left == 0 else 0
    return left // cost if cost else FOREVER


def refusals(  # noqa: PLR0913  one question with its circumstances
    world: World, state: RunState, gpus: int, pod_size: int, at: int, *, anywhere: bool = False
) -> list[Why]:
    """Why that many GPUs, one payer to a pod, cannot be paid, place apart; empty where they can (C6).

    ``anywhere``: by those whose money is not bound to a place.
    """
    found = candidates(world, state)
    if anywhere:
        found = tuple(one for one in found if not one.envelope.selector)
    whys: list[Why] = []
    taken: dict[tuple[Reason, str], int] = {}  # several candidates may share a limit
    still = gpus
    for candidate in found:
        envelope = candidate.envelope
        if not envelope.open_at(at):
            whys.append(Why(Reason.WINDOW_NOT_OPEN, envelope.label, 0, still))
            continue
        bounds = limits(world, state, candidate, MILLI, at)
        if taken:
            bounds = [
                (reason, where, max(0, have - taken.get((reason, where), 0)))
                for reason, where, have in bounds
            ]
        whys += [Why(reason, where, have, still) for reason, where, have in bounds if have < still]
        paid = min([have for _, _, have in bounds]) // pod_size * pod_size
        if not paid:
            continue
        still -= paid
        if still <= 0:
            return []
        for limit in {(reason, where) for reason, where, _ in bounds}:
            taken[limit] = taken.get(limit, 0) + paid
    if not found:
        whys.append(Why(Reason.NO_ENVELOPE, state.owner, 0, still))
    return [*whys, *_denials(world, state, still)]


def _denials(world: World, state: RunState, still: int) -> list[Why]:
    """Sponsors that the Run names and that do not lend to its owner."""
    return [
        Why(Reason.LENDING_DENIED, sponsor, 0, still)
        for sponsor in state.sponsors
        if not sponsored(world, state, sponsor)
    ]


class Means:
    """What candidates can pay for while one gang is laid out, in pods.

    Most questions come again and again, so answers are remembered until a lease opens or is taken back.
    What nobody could pay for stays so while leases only open.
    """

    def __init__(  # noqa: PLR0913  whose, in what pods, when, and who pays
        self,
        world: World,
        state: RunState,
        pod_size: int,
        at: int,
        *,
        unpaid: bool,
        promised: Mapping[EnvelopeKey, int] | None = None,
    ) -> None:
        self._world = world
        self._state = state
        self._size = pod_size
        self._at = at
        self._unpaid = unpaid
        self._promised = promised  # nobody pays for more GPUs than this says
        self._pods: dict[Candidate, int] = {}  # active ones
        self._short: dict[int, int] = {}  # by number of payers: pods that were too many for them
        self._solvent: dict[int, Sequence[Candidate]] = {}  # by number of payers: those not spent yet

    def pods(self, candidate: Candidate, rate: int = MILLI) -> int:
        """Pods at that rate which the candidate can pay for, wherever they are."""
        if self._unpaid:
            return FOREVER
        if rate != MILLI:
            return payable(self._world, self._state, candidate, rate, self._at) // self._size
        known = self._pods.get(candidate)
        if known is None:
            gpus = payable(self._world, self._state, candidate, MILLI, self._at)
            if self._promised is not None:
                gpus = min(gpus, self._still_promised(self._promised, candidate.envelope.key))
            known = self._pods[candidate] = gpus // self._size
        return known

    def _still_promised(self, promised: Mapping[EnvelopeKey, int], key: EnvelopeKey) -> int:
        """Of what that envelope is counted on for, what it does not pay for yet."""
        paid = (one.gpus for one in self._state.leases.values() if one.payer == key and one.role == "Active")
        return max(0, promised.get(key, 0) - sum(paid))

    def solvent(self, payers: Candidates, rate: int = MILLI) -> Sequence[Candidate]:
        """Those of them that are not known to be able to pay for nothing more."""
        if rate != MILLI:
            return payers
        known = self._solvent.get(len(payers), payers)
        found = self._solvent[len(payers)] = [one for one in known if self._pods.get(one) != 0]
        return found

    def purses(self, payers: Candidates, pods: int) -> Purses | None:
        """What each of the nearest candidates could pay for; None where all together cannot pay so many.

        It tells whether a search could succeed, so it may promise too much, never too little. Once enough
        are paid for anywhere, the rest is not counted.
        """
        if pods >= self._short.get(len(payers), FOREVER):
            return None
        purses: Purses = {}
        shared: dict[object, int] = {}  # what limits over several candidates leave
        together = 0
        for candidate in self.solvent(payers):
            paid = self.pods(candidate)
            if paid:
                selector = candidate.envelope.selector
                if paid >= pods and not selector and not purses:
                    return {selector: paid}
                purses[selector] = purses.get(selector, 0) + paid
                together += self._draw(candidate, paid, shared)
                if together >= pods and purses.get((), 0) >= pods:
                    return purses
        if together >= pods:
            return purses
        self._short[len(payers)] = pods
        return None

    def _draw(self, candidate: Candidate, pods: int, shared: dict[object, int]) -> int:
        """So many of these pods as the limits allow that the candidate shares with others."""
        limits = [] if self._unpaid else shared_limits(self._state, candidate)
        for limit, gpus in limits:
            pods = min(pods, shared.setdefault(limit, gpus // self._size))
        for limit, _ in limits:
            shared[limit] -= pods
        return pods

    def spend(self, candidate: Candidate) -> None:
        """The candidate pays for a lease: forget what it, and all who share a limit with it, can pay."""
        self._pods.pop(candidate, None)
        if candidate.envelope.caps or self._state.quotas or candidate.class_ == "Borrowed":
            self._pods = {other: 0 for other, pods in self._pods.items() if not pods}

    def forget(self) -> None:
        """Leases were taken back."""
        self._pods.clear()
        self._short.clear()
        self._solvent.clear()


def shared_limits(state: RunState, candidate: Candidate) -> list[tuple[object, int]]:
    """Limits that the candidate shares with others, and the active GPUs each leaves at once.

    Each lies within the next. An envelope under several caps, which might cross, shares none of them here.
    """
    caps, shape = candidate.envelope.caps, state.shape
    accounts = [caps[0].account, *state.quotas] if len(caps) == 1 else state.quotas
    found: list[tuple[object, int]] = [
        (account, share_of(account.free_charge(), MILLI)) for account in accounts
    ]
    if candidate.class_ == "Borrowed" and shape is not None and shape.max_borrow is not None:
        found.append(("maxBorrowGPUs", max(0, shape.max_borrow - state.borrowed)))
    return found
