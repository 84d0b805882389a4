"""Cover: computes how much each payer of a Run can pay, and which limits bind (C4–C6)."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

from jobtree.api.schema.quantities import HOUR, MILLI
from jobtree.core.accounts.envelope_accounts import FOREVER, Account, EnvelopeState, credits_used
from jobtree.core.accounts.payers import PayerCandidate, PayerCandidates
from jobtree.core.funding.payer_candidates import payer_candidates, sponsor_lends
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
from jobtree.core.world.world import World

BESIDE_PROMISES = " beside promises to others"  # marks a limit less what is kept for promises (C12)
Limit = tuple[Reason, str, int]  # the reason for a refusal, the name of the limit, the GPUs it leaves
PodsBySelector = dict[NodeSelector, int]  # pods that can be paid for, by the selector of their payers


def payable(world: World, run: RunState, candidate: PayerCandidate, rate: int, at: int) -> int:
    """Returns how many GPUs the candidate can pay for at that rate and instant, on any of its nodes (C4)."""
    envelope = candidate.envelope
    account = envelope.account
    if account.free_charge() < rate or not envelope.open_at(at):
        return 0
    if not (envelope.has_other_limits or run.quotas or candidate.class_ == "Borrowed"):
        gpus, hours = gpus_for(account.free_charge(), rate), account.free_use(at)
        return (
            gpus
            if hours is None
            else min(gpus, gpus_for(hours, rate * committed_duration(run, envelope, at)))
        )
    return min([gpus for _, _, gpus in payer_limits(world, run, candidate, rate, at)])


def payable_gpus(world: World, run: RunState, pod_size: int, at: int) -> int:
    """GPUs in whole pods that all payers of the Run could pay for at that instant, each by its own limits."""
    payers = payer_candidates(world, run)
    return sum([payable(world, run, payer, MILLI, at) // pod_size * pod_size for payer in payers])


def payable_from(world: World, run: RunState) -> int | None:
    """Returns when hours suffice for more opportunistic GPUs of the Run than now; None: never.

    As time passes, the Run commits fewer hours (C5); no other change is considered.
    """
    end = run.known_end
    if end is None or not run.opportunistic_gpus:
        return None
    instants = [
        _payable_at(world, run, candidate, end)
        for candidate in payer_candidates(world, run)
        if run.quotas or candidate.class_ == "Borrowed" or not candidate.envelope.limited_by_concurrency_only
    ]
    return min((at for at in instants if at is not None), default=None)


def _payable_at(world: World, run: RunState, candidate: PayerCandidate, end: int) -> int | None:
    """Returns when the hours of one payer suffice for another pod.

    Until something else changes, the number of pods only rises or only falls, so it can be bisected.
    """
    wanted = run.opportunistic_gpus // run.pod_size
    instants = range(world.now, min(end, candidate.envelope.end))

    def pods(at: int) -> int:
        return min(wanted, payable(world, run, candidate, MILLI, at) // run.pod_size)

    pods_now = pods(world.now)
    if not instants or pods(instants[-1]) <= pods_now:
        return None
    return instants[bisect_right(instants, pods_now, key=pods)]


def payer_limits(world: World, run: RunState, candidate: PayerCandidate, rate: int, at: int) -> list[Limit]:
    """Returns each limit of the candidate: its reason, its name, and the GPUs that it leaves."""
    envelope = candidate.envelope
    span, precedence = committed_duration(run, envelope, at), run.precedence_at(at)
    cost = rate * span
    limits = _account_limits(envelope.account, Reason.CONCURRENCY_EXHAUSTED, rate, cost, at)
    unreserved = available_beside_promises(world, run, envelope, at)
    if unreserved is not None and unreserved < envelope.account.free_charge():
        limits.append(
            (Reason.CONCURRENCY_EXHAUSTED, envelope.label + BESIDE_PROMISES, gpus_for(unreserved, rate))
        )
    if envelope.max_credits is not None:
        left = envelope.max_credits - credits_used([envelope], at)
        limits.append((Reason.CREDITS_EXHAUSTED, envelope.label, gpus_for(left, cost * envelope.price)))
    if candidate.class_ == "Borrowed":
        limits += _account_limits(envelope.lending_account, Reason.BORROW_LIMIT, rate, cost, at)
        limits += _lending_limits(world, run, envelope, rate, at)
    for label, gpus in use_limits(run, envelope, precedence, rate, at, span):
        own = Reason.CREDITS_EXHAUSTED if envelope.account.max_use is None else Reason.HOURS_EXHAUSTED
        limits.append((own if label == envelope.label else Reason.AGGREGATE_CAP, label, gpus))
    for cap in envelope.caps:
        limits += _account_limits(cap.account, Reason.AGGREGATE_CAP, rate, cost, at)
        if cap.account.max_charge < FOREVER and dated_promises_on(cap.envelopes, run.key, precedence):
            unreserved = unreserved_charge_under_cap(world, cap, at, run.certain_end(at), run.key, precedence)
            limits.append((Reason.AGGREGATE_CAP, cap.account.label, gpus_for(max(0, unreserved), rate)))
        if cap.max_credits is not None:
            left = cap.max_credits - credits_used(cap.envelopes, at)
            limits.append((Reason.AGGREGATE_CAP, cap.account.label, gpus_for(left, cost * envelope.price)))
    for quota in run.quotas:
        limits += _account_limits(quota, Reason.TREE_QUOTA, rate, cost, at)
    return limits + _quota_limits_beside_promises(world, run, rate, at, span)


def _quota_limits_beside_promises(world: World, run: RunState, rate: int, at: int, span: int) -> list[Limit]:
    """Returns the quotas of the Run's trees, less what is kept for promises to other stages."""
    return [
        (Reason.TREE_QUOTA, quota.account.label + BESIDE_PROMISES, gpus)
        for quota in quota_limits(world, run, run.precedence_at(at))
        if quota.promises
        for gpus in quota.gpus(rate, at, run.certain_end(at), span)
    ]


def _lending_limits(
    world: World, run: RunState, envelope: EnvelopeState, rate: int, at: int
) -> Iterator[Limit]:
    """Yields what the envelope may lend beside promises of borrowed GPUs, and what the Run may borrow."""
    span, shape = committed_duration(run, envelope, at), run.shape
    lending = lending_limit(world, envelope, run.key, run.precedence_at(at)) if envelope.promises else None
    if lending is not None and not may_run_provisionally(
        world, run, (promise for promise, _ in lending.promises), at
    ):
        for gpus in lending.gpus(rate, at, run.certain_end(at), span) if lending.promises else ():
            yield Reason.BORROW_LIMIT, envelope.lending_account.label + BESIDE_PROMISES, gpus
    if shape is not None and shape.max_borrow is not None:
        yield Reason.BORROW_LIMIT, "funding.maxBorrowGPUs", max(0, shape.max_borrow - run.borrowed_gpus)


def committed_duration(run: RunState, envelope: EnvelopeState, at: int) -> int:
    """Returns for how long the Run commits hours: its remaining time in the window, or else an hour (C5)."""
    shape = run.shape
    if shape is None or shape.max_duration is None:
        return HOUR
    start = at if run.since is None else run.since
    return max(0, min(start + shape.max_duration, envelope.end) - at)


def _account_limits(account: Account, reason: Reason, rate: int, cost: int, at: int) -> list[Limit]:
    """Returns the GPUs that an account leaves: by concurrency, and by GPU-hours if each GPU costs so many."""
    limits = [(reason, account.label, gpus_for(account.free_charge(), rate))]
    hours = account.free_use(at)
    if hours is not None:
        hours_reason = Reason.HOURS_EXHAUSTED if reason is Reason.CONCURRENCY_EXHAUSTED else reason
        limits.append((hours_reason, account.label, gpus_for(hours, cost)))
    return limits


def gpus_for(left: int, cost: int) -> int:
    """Returns how many GPUs can be paid from what is left of a limit, at that cost for each."""
    if left <= 0:
        return FOREVER if cost == 0 and left == 0 else 0
    return left // cost if cost else FOREVER


def funding_refusals(  # noqa: PLR0913  one question with its circumstances
    world: World, run: RunState, gpus: int, pod_size: int, at: int, *, anywhere: bool = False
) -> list[Cause]:
    """Returns why nobody can pay for that many GPUs, with one payer for each pod; empty if it can be paid.

    Places are not considered (C6). With ``anywhere``, only envelopes that pay on all nodes are considered.
    """
    candidates = payer_candidates(world, run)
    if anywhere:
        candidates = tuple(candidate for candidate in candidates if not candidate.envelope.selector)
    causes: list[Cause] = []
    taken: dict[tuple[Reason, str], int] = {}  # GPUs so far under each limit, which candidates may share
    missing = gpus
    for candidate in candidates:
        envelope = candidate.envelope
        if not envelope.open_at(at):
            causes.append(Cause(Reason.WINDOW_NOT_OPEN, envelope.label, 0, missing))
            continue
        limits = payer_limits(world, run, candidate, MILLI, at)
        if taken:
            limits = [
                (reason, where, max(0, have - taken.get((reason, where), 0)))
                for reason, where, have in limits
            ]
        causes += [Cause(reason, where, have, missing) for reason, where, have in limits if have < missing]
        paid = min([have for _, _, have in limits]) // pod_size * pod_size
        if not paid:
            continue
        missing -= paid
        if missing <= 0:
            return []
        for limit in {(reason, where) for reason, where, _ in limits}:
            taken[limit] = taken.get(limit, 0) + paid
    if not candidates:
        causes.append(Cause(Reason.NO_ENVELOPE, run.owner, 0, missing))
    return [*causes, *_lending_denials(world, run, missing)]


def _lending_denials(world: World, run: RunState, missing: int) -> list[Cause]:
    """Returns the sponsors that the Run names but that lend nothing to its owner."""
    return [
        Cause(Reason.LENDING_DENIED, sponsor, 0, missing)
        for sponsor in run.sponsors
        if not sponsor_lends(world, run, sponsor)
    ]


class GangFunding:
    """The pods that each candidate can pay for while the layout of one gang is computed.

    The layout asks the same questions many times. Answers are cached until a lease opens that could change
    them, or until leases are rolled back. While leases only open, a refusal stays true.
    """

    def __init__(  # noqa: PLR0913  the Run, its pods, the instant, and the payers
        self,
        world: World,
        run: RunState,
        pod_size: int,
        at: int,
        *,
        opportunistic: bool,
        promised: Mapping[EnvelopeKey, int] | None = None,
    ) -> None:
        self._world = world
        self._run = run
        self._pod_size = pod_size
        self._at = at
        self._opportunistic = opportunistic  # the gang needs no payer
        self._promised = promised  # the most GPUs that each payer pays for
        self._pods: dict[PayerCandidate, int] = {}  # active pods that each can still pay for
        self._unaffordable: dict[int, int] = {}  # pods that were too many, by the number of payers
        self._not_exhausted: dict[int, Sequence[PayerCandidate]] = {}  # by the number of payers

    def pods(self, candidate: PayerCandidate, rate: int = MILLI) -> int:
        """Returns how many pods the candidate can pay for at that rate, on any of its nodes."""
        if self._opportunistic:
            return FOREVER
        if rate != MILLI:
            return payable(self._world, self._run, candidate, rate, self._at) // self._pod_size
        pods = self._pods.get(candidate)
        if pods is None:
            gpus = payable(self._world, self._run, candidate, MILLI, self._at)
            if self._promised is not None:
                gpus = min(gpus, self._still_promised(self._promised, candidate.envelope.key))
            pods = self._pods[candidate] = gpus // self._pod_size
        return pods

    def _still_promised(self, promised: Mapping[EnvelopeKey, int], key: EnvelopeKey) -> int:
        """Returns the GPUs that this envelope is to pay for by the promise and does not pay for yet."""
        leases = self._run.leases.values()
        paid = (lease.gpus for lease in leases if lease.payer == key and lease.role == "Active")
        return max(0, promised.get(key, 0) - sum(paid))

    def not_exhausted(self, payers: PayerCandidates, rate: int = MILLI) -> Sequence[PayerCandidate]:
        """Returns the payers, without those that are known to pay for no further pod."""
        if rate != MILLI:
            return payers
        before = self._not_exhausted.get(len(payers), payers)
        candidates = self._not_exhausted[len(payers)] = [
            candidate for candidate in before if self._pods.get(candidate) != 0
        ]
        return candidates

    def affordable_by_selector(self, payers: PayerCandidates, pods: int) -> PodsBySelector | None:
        """Returns an upper bound on the pods that the nearest payers can pay for, by their selector.

        Returns None if all payers together cannot pay for that many pods. Once these are paid for on any
        node, further payers are not counted.
        """
        if pods >= self._unaffordable.get(len(payers), FOREVER):
            return None
        affordable: PodsBySelector = {}
        left: dict[object, int] = {}  # pods that each shared limit still leaves
        total = 0
        for candidate in self.not_exhausted(payers):
            payable_pods = self.pods(candidate)
            if payable_pods:
                selector = candidate.envelope.selector
                if payable_pods >= pods and not selector and not affordable:
                    return {selector: payable_pods}
                affordable[selector] = affordable.get(selector, 0) + payable_pods
                total += self._within_shared_limits(candidate, payable_pods, left)
                if total >= pods and affordable.get((), 0) >= pods:
                    return affordable
        if total >= pods:
            return affordable
        self._unaffordable[len(payers)] = pods
        return None

    def _within_shared_limits(self, candidate: PayerCandidate, pods: int, left: dict[object, int]) -> int:
        """Returns how many of these pods the candidate's shared limits allow; deducts them from ``left``."""
        limits = [] if self._opportunistic else shared_limits_now(self._run, candidate)
        for limit, gpus in limits:
            pods = min(pods, left.setdefault(limit, gpus // self._pod_size))
        for limit, _ in limits:
            left[limit] -= pods
        return pods

    def invalidate_payer(self, candidate: PayerCandidate) -> None:
        """Forgets what a candidate that pays for a new lease can pay, and all that share a limit with it."""
        self._pods.pop(candidate, None)
        if candidate.envelope.caps or self._run.quotas or candidate.class_ == "Borrowed":
            self._pods = {other: 0 for other, pods in self._pods.items() if not pods}

    def invalidate(self) -> None:
        """Forgets all answers after leases were rolled back."""
        self._pods.clear()
        self._unaffordable.clear()
        self._not_exhausted.clear()


def shared_limits_now(run: RunState, candidate: PayerCandidate) -> list[tuple[object, int]]:
    """Returns limits that the candidate shares with others, and the active GPUs that each leaves now.

    The limits are nested: no two of them apply to some of the same payers and to others apart. The caps of an
    envelope that has several are left out, since these may overlap.
    """
    caps, shape = candidate.envelope.caps, run.shape
    accounts = [caps[0].account, *run.quotas] if len(caps) == 1 else run.quotas
    limits: list[tuple[object, int]] = [
        (account, gpus_for(account.free_charge(), MILLI)) for account in accounts
    ]
    if candidate.class_ == "Borrowed" and shape is not None and shape.max_borrow is not None:
        limits.append(("maxBorrowGPUs", max(0, shape.max_borrow - run.borrowed_gpus)))
    return limits
