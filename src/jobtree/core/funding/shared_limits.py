"""Pools: limits that several Runs share besides concurrency of envelopes and caps, behind promises (R2, C4).

What an envelope may lend, the quota of a tree: leases count against each, and so do promises, from their
start to their end. Whoever starts, or is promised a start, behind a promise leaves what that one needs.
Known ends give back; so does provisional work to promises made before it.
"""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from jobtree.api.schema.quantities import MILLI
from jobtree.core.accounts.envelope_accounts import FOREVER, Account, EnvelopeState
from jobtree.core.funding.reserved_hours import ReservedUsage, max_gpus
from jobtree.core.model.gpu_lease import GpuLease, RunKey
from jobtree.core.model.promise import Precedence, Promise
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.payer_candidates import funding_class
from jobtree.core.world.world import World

ChargeOf = Callable[[Promise], int]  # charge that a promise takes from a pool


class SharedLimit(msgspec.Struct, frozen=True, eq=False):
    """One limit, with all that counts against it as somebody sees it."""

    account: Account
    precedence: Precedence | None  # of who looks: promises made before that one hold; all, without one
    ends: list[tuple[int | None, int, RunState | None]]  # of leases: known end, charge, holder
    claims: list[tuple[Promise, int]]  # others' promises with a date, and their charge
    own: tuple[Promise, int] | None

    def charge(self, at: int, end: int) -> int:
        """Charge that is left from ``at`` to ``end``."""
        found = self._left(at)
        for promise, _ in self.claims:
            later = promise.at or 0
            if at < later < end:
                found = min(found, max(self._left(later), self._due_by(later)))
        return found

    def _left(self, instant: int) -> int:
        free = self.account.free_charge()
        for known_end, charge, holder in self.ends:
            yields = (
                self.precedence is not None
                and holder is not None
                and holder.is_provisional_to(self.precedence)
            )
            lapse = holder.interim_until if holder is not None else None
            if yields or any(end is not None and end <= instant for end in (known_end, lapse)):
                free += charge
        for promise, charge in self.claims:
            if (promise.at or 0) <= instant < (FOREVER if promise.end is None else promise.end):
                free -= charge
        return free

    def _due_by(self, instant: int) -> int:
        """What its own promise would have by then anyway (R7)."""
        if self.own is None or self.precedence is not None:
            return -FOREVER
        promise, charge = self.own
        return charge if promise.at is not None and promise.at <= instant else -FOREVER

    def gpus(self, rate: int, at: int, end: int, span: int) -> Iterator[int]:
        """GPUs at that rate that it leaves from ``at`` to ``end``, by charge and by hours."""
        if self.account.max_charge < FOREVER:
            yield max(0, self.charge(at, end)) // rate if rate else FOREVER
        if self.account.max_use is not None and self.claims:
            known = [reserved_usage_of(promise, charge) for promise, charge in self.claims]
            hours = lambda by: self.account.free_use(by) or 0  # noqa: E731
            yield max_gpus(known, hours, at, span, rate, declared=end < FOREVER)


def reserved_usage_of(promise: Promise, charge: int) -> ReservedUsage:
    at = promise.at or 0
    return ReservedUsage(at, None if promise.end is None else promise.end - at, charge)


def shared_limit(  # noqa: PLR0913, PLR0917  a limit, what counts against it, for whom, behind whom
    world: World,
    account: Account,
    leases: Iterable[GpuLease],
    promises: dict[RunKey, Promise],
    weight: ChargeOf,
    run_key: RunKey,
    precedence: Precedence | None,
) -> SharedLimit:
    held = ((world.posted_leases[lease.name], lease) for lease in leases)
    own = promises.get(run_key)
    return SharedLimit(
        account,
        precedence,
        [(one.known_end, lease.charge, one.run) for one, lease in held],
        [
            (promise, weight(promise))
            for key, promise in promises.items()
            if key != run_key
            and promise.at is not None
            and (precedence is None or promise.precedence < precedence)
        ],
        None if own is None else (own, weight(own)),
    )


def lending_limit(
    world: World, envelope: EnvelopeState, run_key: RunKey, precedence: Precedence | None
) -> SharedLimit:
    """What one envelope lends to sponsored Runs."""
    leases = (lease for lease in envelope.leases.values() if lease.class_ == "Borrowed")
    promises = {
        key: promise
        for key, promise in envelope.promises.items()
        if funding_class(world, envelope, world.runs[key]) == "Borrowed"
    }

    def weight(promise: Promise) -> int:
        return sum(gpus for key, gpus in promise.funding if key == envelope.key) * MILLI

    return shared_limit(world, envelope.lending_account, leases, promises, weight, run_key, precedence)


def quota_limits(world: World, run: RunState, precedence: Precedence | None) -> Iterator[SharedLimit]:
    """The quotas of all trees above a stage."""
    for tree in world.run_graph.trees_of(run) if run.quotas else ():
        account = world.run_graph.quota(tree.key)
        if account is not None:
            stages = list(world.run_graph.descendants(tree))
            leases = (
                lease for one in stages for lease in one.leases.values() if lease.role != "Opportunistic"
            )
            promises = {one.key: one.promise for one in stages if one.promise is not None}
            yield shared_limit(world, account, leases, promises, promised_charge, run.key, precedence)


def promised_charge(promise: Promise) -> int:
    return promise.width * MILLI
