"""Which leases use the nodes of a domain, and when each can release its GPUs (R2–R4).

A lease is split by node. Each part has four release times, one for each disruption: the instant from which a
start can have these GPUs if it takes nothing, spares and steps, or in addition holds a lottery, or ends Runs
that were told of a recall. For an Active lease of a fixed Run that is not provisional, they depend on the
lease and its Run alone. So they are computed once and cached with the domain: when another lease opens or
closes, they stay valid. All other leases are split each time.

The leases of a domain are listed once. A view shows them on the nodes that a kind of pod may use. In the
view of a promise, provisional work that started after the promise was made counts as free (R6). Most promises
share a view, since only provisional work in the same domain makes a difference.
"""

from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from jobtree.core.accounts.envelope_accounts import FOREVER
from jobtree.core.availability.node_availability import NodeAvailability
from jobtree.core.availability.shrink_steps import shrink_steps
from jobtree.core.funding.payer_candidates import last_closing
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import LOTTERY, STRUCTURAL, Disruption, Precedence
from jobtree.core.model.versioned_cache import VersionedCache
from jobtree.core.runs.notice import DrawNotice, certain_end, draw_notice_ms, immune_until, notice_ends_at
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.domain import Domain
from jobtree.core.world.open_leases import PostedLease
from jobtree.core.world.world import World

ALWAYS = -1  # an instant before all others: the GPUs can be released at any time

ReleaseTimes = tuple[int, int, int, int]  # by disruption
ALWAYS_FREE: ReleaseTimes = (ALWAYS, ALWAYS, ALWAYS, ALWAYS)


class OccupiedGpus(NamedTuple):
    """GPUs on one node that a lease uses, and when they can be released."""

    node: str
    gpus: int
    releases: ReleaseTimes


class LeaseOccupancy(NamedTuple):
    """A lease split by node, and the values of its Run that the release times depend on."""

    posted: PostedLease
    since: int | None
    promised_start: int | None
    lotteries_lost: int
    not_drawn_at: int | None
    recalled_at: int | None
    parts: tuple[OccupiedGpus, ...]
    draw_notice: DrawNotice | None  # None: it cannot be drawn
    provisional_since: int | None  # None: it is not provisional

    def is_current(self, posted: PostedLease, run: RunState | None, recalled_at: int | None) -> bool:
        return (
            self.posted is posted
            and run is not None
            and self.since == run.since
            and self.promised_start == run.promised_start
            and self.lotteries_lost == run.lotteries_lost
            and self.not_drawn_at == run.not_drawn_at
            and self.recalled_at == recalled_at
            and run.interim_until is None
        )

    def is_provisional_to(self, made_at: int) -> bool:
        """Whether the lease is provisional and ends for a promise that was made at that instant (R6)."""
        return self.provisional_since is not None and made_at <= self.provisional_since


class DomainOccupancy:
    """The leases in one domain, all or some of them."""

    def __init__(self, leases: list[LeaseOccupancy]) -> None:
        self.leases = leases
        starts = {lease.provisional_since for lease in leases if lease.provisional_since is not None}
        self.provisional_since = sorted(starts)  # the instants at which provisional work here started

    def first_provisional_after(self, precedence: Precedence | None) -> int | None:
        """Returns the earliest start of provisional work here that ends for a promise of this precedence.

        All provisional work that started later ends for it, too. None: no provisional work ends for it.
        """
        if precedence is None or not self.provisional_since:
            return None
        index = bisect_left(self.provisional_since, precedence[0])
        return self.provisional_since[index] if index < len(self.provisional_since) else None

    def without(self, runs: Container[RunKey]) -> "DomainOccupancy":
        """Returns the occupancy as if these Runs had no leases."""
        return DomainOccupancy([lease for lease in self.leases if lease.posted.lease.run_key not in runs])


LEASE_OCCUPANCIES = VersionedCache[str, LeaseOccupancy]()  # by name of the lease


class OccupancyReader:
    """Splits the leases of one domain by node."""

    def __init__(self, world: World, domain: Domain) -> None:
        self._world, self._domain = world, domain

    def read(self) -> list[LeaseOccupancy]:
        """Returns all leases of the domain, from the cache where that is still right."""
        world, cached = self._world, LEASE_OCCUPANCIES.at(self._domain.release_version)
        names: dict[str, None] = {}
        for node in self._domain.nodes:
            names.update(world.leases_by_node.get(node, ()))
        if len(cached) > 2 * len(names) + 64:  # most of the cached leases are closed
            for name in [name for name in cached if name not in names]:
                del cached[name]
        return [self._occupancy(cached, world.posted_leases[name]) for name in names]

    def _occupancy(self, cached: dict[str, LeaseOccupancy], posted: PostedLease) -> LeaseOccupancy:
        before = cached.get(posted.lease.name)
        run = self._world.runs.get(posted.lease.run_key)
        recalled_at = None if run is None else self._world.promise_index.recalled_at(run)
        if before is not None and before.is_current(posted, run, recalled_at):
            return before
        if run is None:
            return LeaseOccupancy(
                posted, None, None, 0, None, None, tuple(self._parts(posted, ALWAYS_FREE, {})), None, None
            )
        policy, now = self._world.policy, self._world.now
        end, immune = self._end(run), immune_until(policy, run, now)
        recalled = end if recalled_at is None else min(end, recalled_at)
        drawable = max(immune, notice_ends_at(policy, run, posted.lease))
        malleable = run.shape is not None and run.shape.malleable
        shrinkable = self._shrinkable_gpus(run) if malleable else {}
        occupancy = LeaseOccupancy(
            posted=posted,
            since=run.since,
            promised_start=run.promised_start,
            lotteries_lost=run.lotteries_lost,
            not_drawn_at=run.not_drawn_at,
            recalled_at=recalled_at,
            parts=tuple(self._parts(posted, (end, end, min(end, drawable), recalled), shrinkable)),
            draw_notice=DrawNotice(immune, end, draw_notice_ms(policy, run.checkpoint_ms)),
            provisional_since=run.since if run.provisional else None,
        )
        if posted.lease.role == "Active" and not malleable and run.interim_until is None:
            cached[posted.lease.name] = occupancy
        return occupancy

    def _end(self, run: RunState) -> int:
        """Returns when the Run has certainly ended; an interim Run ends when its own promise is due.

        A Run that holds its promise may be stopped and start again on its date (R7).
        """
        promise, closing = run.promise, last_closing(self._world, run)
        if promise is not None and promise.held:
            return certain_end(promise.end, closing)
        end, interim = certain_end(run.known_end, closing), run.interim_until
        return end if interim is None else min(end, interim)

    def _shrinkable_gpus(self, run: RunState) -> dict[tuple[str, str], int]:
        """Returns the GPUs of the Run's steps that lie wholly in this domain, by lease and node.

        A step that extends into other domains does not count. So no step is counted twice, and each step that
        counts can be taken whatever other domains a slice has.
        """
        gpus_by_part: dict[tuple[str, str], int] = {}
        for step in shrink_steps(self._world, run):
            if all(part.node in self._domain.nodes for part in step):
                for part in step:
                    key = (part.lease, part.node)
                    gpus_by_part[key] = gpus_by_part.get(key, 0) + part.mask.bit_count()
        return gpus_by_part

    def _parts(
        self, posted: PostedLease, releases: ReleaseTimes, shrinkable: dict[tuple[str, str], int]
    ) -> Iterator[OccupiedGpus]:
        """Yields the parts of a lease on the nodes of this domain."""
        lease, nodes = posted.lease, self._domain.nodes
        for node, mask in lease.slots:
            if node not in nodes:
                continue
            gpus = mask.bit_count()
            if lease.role == "Opportunistic":  # its GPUs on the slots of spares count for the spares
                yield OccupiedGpus(node, (mask & ~nodes[node].spare).bit_count(), ALWAYS_FREE)
            elif lease.role == "Spare":
                yield OccupiedGpus(node, gpus, (releases[0], ALWAYS, ALWAYS, ALWAYS))
            else:
                in_steps = shrinkable.get((lease.name, node), 0)
                if in_steps:
                    yield OccupiedGpus(node, in_steps, (releases[0], ALWAYS, ALWAYS, ALWAYS))
                yield OccupiedGpus(node, gpus - in_steps, releases)


class OccupancyView:
    """The leases on some nodes of a domain, where certain provisional work counts as free.

    That is the provisional work that started at ``provisional_from`` or later; None: no provisional work.
    """

    def __init__(
        self,
        occupancy: DomainOccupancy,
        domain: Domain,
        usable: Sequence[str],
        provisional_from: int | None,
    ) -> None:
        self.usable = usable
        self._index = {name: index for index, name in enumerate(usable)}
        self.draw_notices: set[DrawNotice] = set()  # of all Runs that could be drawn here
        self._parts: list[OccupiedGpus] = []
        all_usable = len(usable) == len(domain.nodes)
        for lease in occupancy.leases:
            parts: Iterable[OccupiedGpus] = lease.parts
            if not all_usable:
                parts = [part for part in parts if part.node in self._index]
            if provisional_from is not None and lease.is_provisional_to(provisional_from):
                parts = [OccupiedGpus(node, gpus, ALWAYS_FREE) for node, gpus, _ in parts]
            elif lease.draw_notice is not None and parts:
                self.draw_notices.add(lease.draw_notice)
            self._parts += parts
        # Negative if foreign pods and leases use more GPUs than a node has.
        self.free = [max(0, domain.nodes[name].node.gpus - domain.nodes[name].foreign) for name in usable]
        for node, gpus, _ in self._parts:
            self.free[self._index[node]] -= gpus
        self._releases: dict[Disruption, list[tuple[int, int, int]]] = {}

    def releases(self, disruption: Disruption) -> list[tuple[int, int, int]]:
        """Returns what is certain to be released, in order: the instant, the index of the node, the GPUs."""
        cached = self._releases.get(disruption)
        if cached is None:
            index = self._index
            cached = self._releases[disruption] = sorted(
                [
                    (releases[disruption], index[node], gpus)
                    for node, gpus, releases in self._parts
                    if releases[disruption] < FOREVER
                ]
            )
        return cached

    def releases_in_peace(self, since: int) -> list[tuple[int, int, int]]:
        """The same for a lottery that may draw only whom a lottery at that instant could not (R4)."""
        index = self._index
        instants = (
            (releases[LOTTERY] if releases[LOTTERY] > since else releases[STRUCTURAL], index[node], gpus)
            for node, gpus, releases in self._parts
        )
        return sorted([release for release in instants if release[0] < FOREVER])

    @cached_property
    def node_availability(self) -> NodeAvailability:
        """The free GPUs of each node over time."""
        free = dict(zip(self._index, self.free, strict=True))
        return NodeAvailability(free, self._parts)

    @cached_property
    def longest_notice(self) -> int:
        """The longest notice that a Run needs which could ever be drawn here."""
        return max((notice for _, _, notice in self.draw_notices), default=0)


DOMAIN_OCCUPANCIES = VersionedCache[None, DomainOccupancy]()
# By nodes, and by what counts as free: provisional work from an instant on, or the leases of some Runs.
OCCUPANCY_VIEWS = VersionedCache[tuple[tuple[str, ...], int | frozenset[RunKey] | None], OccupancyView]()


def domain_occupancy(world: World, domain: Domain) -> DomainOccupancy:
    """Returns all leases in the domain, cached until one of them changes."""
    cached = DOMAIN_OCCUPANCIES.at(domain.occupancy_version)
    occupancy = cached.get(None)
    if occupancy is None:
        occupancy = cached[None] = lease_occupancies(world, domain)
    return occupancy


def lease_occupancies(world: World, domain: Domain) -> DomainOccupancy:
    """Returns all leases in the domain as they are now."""
    return DomainOccupancy(OccupancyReader(world, domain).read())


def occupancy_view(
    world: World, domain: Domain, usable: tuple[str, ...], provisional_from: int | None
) -> OccupancyView:
    """Returns the view of some nodes, cached until a lease in the domain changes."""
    cached = OCCUPANCY_VIEWS.at(domain.occupancy_version)
    view = cached.get((usable, provisional_from))
    if view is None:
        occupancy = domain_occupancy(world, domain)
        view = cached[usable, provisional_from] = OccupancyView(occupancy, domain, usable, provisional_from)
    return view


def occupancy_view_without(
    world: World, domain: Domain, usable: tuple[str, ...], excluded: frozenset[RunKey]
) -> OccupancyView:
    """Returns the view of some nodes as if these Runs had no leases, cached in the same way."""
    cached = OCCUPANCY_VIEWS.at(domain.occupancy_version)
    view = cached.get((usable, excluded))
    if view is None:
        occupancy = domain_occupancy(world, domain).without(excluded)
        view = cached[usable, excluded] = OccupancyView(occupancy, domain, usable, None)
    return view
