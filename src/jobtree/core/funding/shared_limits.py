"""Computes what promises leave of limits that several Runs share: lending limits and tree quotas (R2, C4).

Concurrency of envelopes and caps is in ``reserved_budget``. Leases count against a shared limit, and so do
promises, from their start to their end: a Run that starts, or gets a promise, must leave what earlier
promises need. A known end returns charge, and so does provisional work to promises that were made before it.
"""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from jobtree.api.schema.quantities import MILLI
from jobtree.core.accounts.envelope_accounts import FOREVER, Account, EnvelopeState
from jobtree.core.funding.payer_candidates import funding_class
from jobtree.core.funding.reserved_hours import ReservedUsage, max_gpus
from jobtree.core.model.gpu_lease import GpuLease, RunKey
from jobtree.core.model.promise import Precedence, Promise
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World

ChargeOf = Callable[[Promise], int]  # the charge of a promise on a limit


class SharedLimit(msgspec.Struct, frozen=True, eq=False):
    """One limit, with the leases and promises that count against it for one Run."""

    account: Account
    precedence: Precedence | None  # of the Run; earlier promises hold against it, or all with None
    leases: list[tuple[int | None, int, RunState | None]]  # known end, charge and Run of each
    promises: list[tuple[Promise, int]]  # dated promises to other Runs, and the charge of each
    own_promise: tuple[Promise, int] | None

    def charge(self, at: int, end: int) -> int:
        """Returns the charge that is left from ``at`` to ``end``."""
        lowest = self._left(at)
        for promise, _ in self.promises:
            instant = promise.at or 0
            if at < instant < end:
                lowest = min(lowest, max(self._left(instant), self._own_charge_by(instant)))
        return lowest

    def _left(self, instant: int) -> int:
        free = self.account.free_charge()
        for known_end, charge, run in self.leases:
            is_reclaimable = (
                self.precedence is not None and run is not None and run.is_provisional_to(self.precedence)
            )
            interim_until = run.interim_until if run is not None else None
            if is_reclaimable or any(
                end is not None and end <= instant for end in (known_end, interim_until)
            ):
                free += charge
        for promise, charge in self.promises:
            if (promise.at or 0) <= instant < (FOREVER if promise.end is None else promise.end):
                free -= charge
        return free

    def _own_charge_by(self, instant: int) -> int:
        """Returns the charge that the Run's own promise has by that instant in any case (R7)."""
        if self.own_promise is None or self.precedence is not None:
            return -FOREVER
        promise, charge = self.own_promise
        return charge if promise.at is not None and promise.at <= instant else -FOREVER

    def gpus(self, rate: int, at: int, end: int, span: int) -> Iterator[int]:
        """Yields the GPUs that are left at that rate from ``at`` to ``end``, by charge and by hours."""
        if self.account.max_charge < FOREVER:
            yield max(0, self.charge(at, end)) // rate if rate else FOREVER
        if self.account.max_use is not None and self.promises:
            reserved = [reserved_usage_of(promise, charge) for promise, charge in self.promises]
            hours = lambda by: self.account.free_use(by) or 0  # noqa: E731
            yield max_gpus(reserved, hours, at, span, rate, declared=end < FOREVER)


def reserved_usage_of(promise: Promise, charge: int) -> ReservedUsage:
    at = promise.at or 0
    return ReservedUsage(at, None if promise.end is None else promise.end - at, charge)


def shared_limit(  # noqa: PLR0913, PLR0917  a limit, what counts against it, and the Run
    world: World,
    account: Account,
    leases: Iterable[GpuLease],
    promises: dict[RunKey, Promise],
    charge_of: ChargeOf,
    run_key: RunKey,
    precedence: Precedence | None,
) -> SharedLimit:
    postings = ((world.posted_leases[lease.name], lease) for lease in leases)
    own = promises.get(run_key)
    return SharedLimit(
        account,
        precedence,
        [(posted.known_end, lease.charge, posted.run) for posted, lease in postings],
        [
            (promise, charge_of(promise))
            for key, promise in promises.items()
            if key != run_key
            and promise.at is not None
            and (precedence is None or promise.precedence < precedence)
        ],
        None if own is None else (own, charge_of(own)),
    )


def lending_limit(
    world: World, envelope: EnvelopeState, run_key: RunKey, precedence: Precedence | None
) -> SharedLimit:
    """Returns the limit on what an envelope lends to sponsored Runs, as it holds for that Run."""
    leases = (lease for lease in envelope.leases.values() if lease.class_ == "Borrowed")
    promises = {
        key: promise
        for key, promise in envelope.promises.items()
        if funding_class(world, envelope, world.runs[key]) == "Borrowed"
    }
    return shared_limit(
        world, envelope.lending_account, leases, promises, envelope.charge_of, run_key, precedence
    )


def quota_limits(world: World, run: RunState, precedence: Precedence | None) -> Iterator[SharedLimit]:
    """Yields the quotas of all trees above a stage."""
    for tree in world.run_graph.trees_of(run) if run.quotas else ():
        account = world.run_graph.quota(tree.key)
        if account is not None:
            stages = list(world.run_graph.descendants(tree))
            leases = (
                lease for stage in stages for lease in stage.leases.values() if lease.role != "Opportunistic"
            )
            promises = {stage.key: stage.promise for stage in stages if stage.promise is not None}
            yield shared_limit(world, account, leases, promises, promised_charge, run.key, precedence)


def promised_charge(promise: Promise) -> int:
    return promise.width * MILLI
