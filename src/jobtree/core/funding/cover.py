"""Cover: how much each payer of a Run can pay (C4–C6)."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

from jobtree.api.schema.quantities import HOUR, MILLI
from jobtree.core.accounts.envelope_accounts import FOREVER, Account, EnvelopeState, credits_used
from jobtree.core.accounts.payers import PayerCandidate, PayerCandidates
from jobtree.core.funding.reserved_budget import (
    available_beside_promises,
    may_run_provisionally,
    unreserved_charge_under_cap,
)
from jobtree.core.funding.reserved_hours import dated_promises_on, use_limits
from jobtree.core.funding.shared_limits import lending_limit, quota_limits
from jobtree.core.model.gpu_lease import EnvelopeKey
from jobtree.core.model.reasons import Cause, Reason
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.node_slots import NodeSelector
from jobtree.core.world.payer_candidates import (
    payer_candidates,
    sponsor_lends,
)
from jobtree.core.world.world import World

BESIDE_PROMISES = " beside promises to others"  # the same limit less what is kept for older Runs (C12)
Limit = tuple[Reason, str, int]  # why it binds, its name, the GPUs it leaves
GpusBySelector = dict[NodeSelector, int]  # pods that can be paid for, by the selector of those who pay


def payable(world: World, run: RunState, candidate: PayerCandidate, rate: int, at: int) -> int:
    """GPUs at that rate which the candidate could pay for at that instant, wherever they are (C4)."""
    envelope = candidate.envelope
    account = envelope.account
    if account.free_charge() < rate or not envelope.open_at(at):
        return 0
    if not (envelope.has_other_limits or run.quotas or candidate.class_ == "Borrowed"):
        gpus, left = gpus_for(account.free_charge(), rate), account.free_use(at)
        return (
            gpus if left is None else min(gpus, gpus_for(left, rate * committed_duration(run, envelope, at)))
        )
    return min([gpus for _, _, gpus in payer_limits(world, run, candidate, rate, at)])


def payable_from(world: World, run: RunState) -> int | None:
    """When somebody has the hours for more of a Run's unpaid GPUs than now, by time alone; None: never.

    The less time it may still run, the fewer hours it commits (C5).
    """
    end = run.known_end
    if end is None or not run.opportunistic_gpus:
        return None
    instants = [
        _payable_at(world, run, one, end)
        for one in payer_candidates(world, run)
        if run.quotas or one.class_ == "Borrowed" or not one.envelope.limited_by_concurrency_only
    ]
    return min((at for at in instants if at is not None), default=None)


def _payable_at(world: World, run: RunState, candidate: PayerCandidate, end: int) -> int | None:
    """When one payer's hours suffice for another pod: between two changes that only rises, or only falls."""
    wanted = run.opportunistic_gpus // run.pod_size
    instants = range(world.now, min(end, candidate.envelope.end))

    def pods(at: int) -> int:
        return min(wanted, payable(world, run, candidate, MILLI, at) // run.pod_size)

    have = pods(world.now)
    if not instants or pods(instants[-1]) <= have:
        return None
    return instants[bisect_right(instants, have, key=pods)]


def payer_limits(world: World, run: RunState, candidate: PayerCandidate, rate: int, at: int) -> list[Limit]:
    """Each limit that binds the candidate: its reason, its name, and the GPUs it leaves."""
    envelope = candidate.envelope
    span, precedence = committed_duration(run, envelope, at), run.precedence_at(at)
    cost = rate * span
    found = _account(envelope.account, Reason.CONCURRENCY_EXHAUSTED, rate, cost, at)
    kept = available_beside_promises(world, run, envelope, at)
    if kept is not None and kept < envelope.account.free_charge():
        found.append((Reason.CONCURRENCY_EXHAUSTED, envelope.label + BESIDE_PROMISES, gpus_for(kept, rate)))
    if envelope.max_credits is not None:
        left = envelope.max_credits - credits_used([envelope], at)
        found.append((Reason.CREDITS_EXHAUSTED, envelope.label, gpus_for(left, cost * envelope.price)))
    if candidate.class_ == "Borrowed":
        found += _account(envelope.lending_account, Reason.BORROW_LIMIT, rate, cost, at)
        found += _lending_limits(world, run, envelope, rate, at)
    for label, gpus in use_limits(run, envelope, precedence, rate, at, span):
        own = Reason.CREDITS_EXHAUSTED if envelope.account.max_use is None else Reason.HOURS_EXHAUSTED
        found.append((own if label == envelope.label else Reason.AGGREGATE_CAP, label, gpus))
    for cap in envelope.caps:
        found += _account(cap.account, Reason.AGGREGATE_CAP, rate, cost, at)
        if cap.account.max_charge < FOREVER and dated_promises_on(cap.envelopes, run.key, precedence):
            kept = unreserved_charge_under_cap(world, cap, at, run.certain_end(at), run.key, precedence)
            found.append((Reason.AGGREGATE_CAP, cap.account.label, gpus_for(max(0, kept), rate)))
        if cap.max_credits is not None:
            left = cap.max_credits - credits_used(cap.envelopes, at)
            found.append((Reason.AGGREGATE_CAP, cap.account.label, gpus_for(left, cost * envelope.price)))
    for quota in run.quotas:
        found += _account(quota, Reason.TREE_QUOTA, rate, cost, at)
    return found + _promised_quotas(world, run, rate, at, span)


def _promised_quotas(world: World, run: RunState, rate: int, at: int, span: int) -> list[Limit]:
    """What quotas of its trees leave behind promises to other stages."""
    return [
        (Reason.TREE_QUOTA, pool.account.label + BESIDE_PROMISES, gpus)
        for pool in quota_limits(world, run, run.precedence_at(at))
        if pool.claims
        for gpus in pool.gpus(rate, at, run.certain_end(at), span)
    ]


def _lending_limits(
    world: World, run: RunState, envelope: EnvelopeState, rate: int, at: int
) -> Iterator[Limit]:
    """What may be lent behind promises that borrow, and what the Run may borrow."""
    span, shape = committed_duration(run, envelope, at), run.shape
    pool = lending_limit(world, envelope, run.key, run.precedence_at(at)) if envelope.promises else None
    if pool is not None and not may_run_provisionally(world, run, (one for one, _ in pool.claims), at):
        for gpus in pool.gpus(rate, at, run.certain_end(at), span) if pool.claims else ():
            yield Reason.BORROW_LIMIT, envelope.lending_account.label + BESIDE_PROMISES, gpus
    if shape is not None and shape.max_borrow is not None:
        yield Reason.BORROW_LIMIT, "funding.maxBorrowGPUs", max(0, shape.max_borrow - run.borrowed_gpus)


def committed_duration(run: RunState, envelope: EnvelopeState, at: int) -> int:
    """How long the Run binds the hours: its remaining time within the window, else an hour (C5)."""
    shape = run.shape
    if shape is None or shape.max_duration is None:
        return HOUR
    began = at if run.since is None else run.since
    return max(0, min(began + shape.max_duration, envelope.end) - at)


def _account(account: Account, reason: Reason, rate: int, cost: int, at: int) -> list[Limit]:
    """What an account leaves, in GPUs: by concurrency and, at that cost of hours each, by GPU-hours."""
    found = [(reason, account.label, gpus_for(account.free_charge(), rate))]
    left = account.free_use(at)
    if left is not None:
        hours = Reason.HOURS_EXHAUSTED if reason is Reason.CONCURRENCY_EXHAUSTED else reason
        found.append((hours, account.label, gpus_for(left, cost)))
    return found


def gpus_for(left: int, cost: int) -> int:
    if left <= 0:
        return FOREVER if cost == 0 and left == 0 else 0
    return left // cost if cost else FOREVER


def funding_refusals(  # noqa: PLR0913  one question with its circumstances
    world: World, run: RunState, gpus: int, pod_size: int, at: int, *, anywhere: bool = False
) -> list[Cause]:
    """Why that many GPUs, one payer to a pod, cannot be paid, place apart; empty where they can (C6).

    ``anywhere``: by those whose money is not bound to a place.
    """
    found = payer_candidates(world, run)
    if anywhere:
        found = tuple(one for one in found if not one.envelope.selector)
    whys: list[Cause] = []
    taken: dict[tuple[Reason, str], int] = {}  # several candidates may share a limit
    still = gpus
    for candidate in found:
        envelope = candidate.envelope
        if not envelope.open_at(at):
            whys.append(Cause(Reason.WINDOW_NOT_OPEN, envelope.label, 0, still))
            continue
        bounds = payer_limits(world, run, candidate, MILLI, at)
        if taken:
            bounds = [
                (reason, where, max(0, have - taken.get((reason, where), 0)))
                for reason, where, have in bounds
            ]
        whys += [Cause(reason, where, have, still) for reason, where, have in bounds if have < still]
        paid = min([have for _, _, have in bounds]) // pod_size * pod_size
        if not paid:
            continue
        still -= paid
        if still <= 0:
            return []
        for limit in {(reason, where) for reason, where, _ in bounds}:
            taken[limit] = taken.get(limit, 0) + paid
    if not found:
        whys.append(Cause(Reason.NO_ENVELOPE, run.owner, 0, still))
    return [*whys, *_denials(world, run, still)]


def _denials(world: World, run: RunState, still: int) -> list[Cause]:
    """Sponsors that the Run names and that do not lend to its owner."""
    return [
        Cause(Reason.LENDING_DENIED, sponsor, 0, still)
        for sponsor in run.sponsors
        if not sponsor_lends(world, run, sponsor)
    ]


class GangFunding:
    """What candidates can pay for while one gang is laid out, in pods.

    Most questions come again and again, so answers are remembered until a lease opens or is taken back.
    What nobody could pay for stays so while leases only open.
    """

    def __init__(  # noqa: PLR0913  whose, in what pods, when, and who pays
        self,
        world: World,
        run: RunState,
        pod_size: int,
        at: int,
        *,
        unpaid: bool,
        promised: Mapping[EnvelopeKey, int] | None = None,
    ) -> None:
        self._world = world
        self._run = run
        self._size = pod_size
        self._at = at
        self._unpaid = unpaid
        self._promised = promised  # nobody pays for more GPUs than this says
        self._pods: dict[PayerCandidate, int] = {}  # active ones
        self._short: dict[int, int] = {}  # by number of payers: pods that were too many for them
        self._solvent: dict[int, Sequence[PayerCandidate]] = {}  # by number of payers: those not spent yet

    def pods(self, candidate: PayerCandidate, rate: int = MILLI) -> int:
        """Pods at that rate which the candidate can pay for, wherever they are."""
        if self._unpaid:
            return FOREVER
        if rate != MILLI:
            return payable(self._world, self._run, candidate, rate, self._at) // self._size
        known = self._pods.get(candidate)
        if known is None:
            gpus = payable(self._world, self._run, candidate, MILLI, self._at)
            if self._promised is not None:
                gpus = min(gpus, self._still_promised(self._promised, candidate.envelope.key))
            known = self._pods[candidate] = gpus // self._size
        return known

    def _still_promised(self, promised: Mapping[EnvelopeKey, int], key: EnvelopeKey) -> int:
        """Of what that envelope is counted on for, what it does not pay for yet."""
        paid = (one.gpus for one in self._run.leases.values() if one.payer == key and one.role == "Active")
        return max(0, promised.get(key, 0) - sum(paid))

    def not_exhausted(self, payers: PayerCandidates, rate: int = MILLI) -> Sequence[PayerCandidate]:
        """Those of them that are not known to be able to pay for nothing more."""
        if rate != MILLI:
            return payers
        known = self._solvent.get(len(payers), payers)
        found = self._solvent[len(payers)] = [one for one in known if self._pods.get(one) != 0]
        return found

    def affordable_by_selector(self, payers: PayerCandidates, pods: int) -> GpusBySelector | None:
        """What each of the nearest candidates could pay for; None where all together cannot pay so many.

        It tells whether a search could succeed, so it may promise too much, never too little. Once enough
        are paid for anywhere, the rest is not counted.
        """
        if pods >= self._short.get(len(payers), FOREVER):
            return None
        purses: GpusBySelector = {}
        shared: dict[object, int] = {}  # what limits over several candidates leave
        together = 0
        for candidate in self.not_exhausted(payers):
            paid = self.pods(candidate)
            if paid:
                selector = candidate.envelope.selector
                if paid >= pods and not selector and not purses:
                    return {selector: paid}
                purses[selector] = purses.get(selector, 0) + paid
                together += self._within_shared_limits(candidate, paid, shared)
                if together >= pods and purses.get((), 0) >= pods:
                    return purses
        if together >= pods:
            return purses
        self._short[len(payers)] = pods
        return None

    def _within_shared_limits(self, candidate: PayerCandidate, pods: int, shared: dict[object, int]) -> int:
        """So many of these pods as the limits allow that the candidate shares with others."""
        limits = [] if self._unpaid else shared_limits_now(self._run, candidate)
        for limit, gpus in limits:
            pods = min(pods, shared.setdefault(limit, gpus // self._size))
        for limit, _ in limits:
            shared[limit] -= pods
        return pods

    def invalidate_payer(self, candidate: PayerCandidate) -> None:
        """The candidate pays for a lease: forget what it, and all who share a limit with it, can pay."""
        self._pods.pop(candidate, None)
        if candidate.envelope.caps or self._run.quotas or candidate.class_ == "Borrowed":
            self._pods = {other: 0 for other, pods in self._pods.items() if not pods}

    def invalidate(self) -> None:
        """Leases were taken back."""
        self._pods.clear()
        self._short.clear()
        self._solvent.clear()


def shared_limits_now(run: RunState, candidate: PayerCandidate) -> list[tuple[object, int]]:
    """Limits that the candidate shares with others, and the active GPUs each leaves at once.

    Each lies within the next. An envelope under several caps, which might cross, shares none of them here.
    """
    caps, shape = candidate.envelope.caps, run.shape
    accounts = [caps[0].account, *run.quotas] if len(caps) == 1 else run.quotas
    found: list[tuple[object, int]] = [
        (account, gpus_for(account.free_charge(), MILLI)) for account in accounts
    ]
    if candidate.class_ == "Borrowed" and shape is not None and shape.max_borrow is not None:
        found.append(("maxBorrowGPUs", max(0, shape.max_borrow - run.borrowed_gpus)))
    return found
