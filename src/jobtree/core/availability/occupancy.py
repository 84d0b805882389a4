"""Who stands in a domain, and until when: the ground on which its horizons are counted (R2–R4).

Every lease is taken apart by node into stays, each with the instants from which the three levels could have
its GPUs (``horizon``). That depends on the lease and its Run alone, so it is done once for each lease and
remembered with the domain: when a lease opens or closes, only that one is looked at. What malleable, unpaid
and provisional Runs would give up depends on more than that, and is found anew.

All tenants of a domain are listed once. A stand is what somebody sees of them: on the nodes that a kind of
pod may use, without the provisional work that yields to a promise made early enough (R6). Few promises see
anything else than all others do, since only provisional work in this very domain makes a difference.
"""

from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from jobtree.core.accounts.envelope_accounts import FOREVER
from jobtree.core.availability.fragmentation import NodeAvailability
from jobtree.core.availability.shrink_steps import shrink_steps
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import Disruption, Precedence
from jobtree.core.model.versioned_cache import VersionedCache
from jobtree.core.runs.notice import DrawNotice, certain_end, draw_notice_ms, immune_until
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.domain import Domain
from jobtree.core.world.open_leases import PostedLease
from jobtree.core.world.payer_candidates import last_closing
from jobtree.core.world.world import World

ALWAYS = -1  # released whenever it is asked for

ReleaseTimes = tuple[int, int, int]  # when each level could have it
RELEASED: ReleaseTimes = (ALWAYS, ALWAYS, ALWAYS)


class OccupiedGpus(NamedTuple):
    """GPUs on one node that somebody holds, and when each level could have them."""

    node: str
    gpus: int
    releases: ReleaseTimes


class LeaseOccupancy(NamedTuple):
    """A lease taken apart, and what that depends on."""

    held: PostedLease
    since: int | None
    lost: int
    stays: tuple[OccupiedGpus, ...]
    notice: DrawNotice | None  # None: it cannot be drawn
    provisional_since: int | None  # None: it yields to no promise

    def is_current(self, held: PostedLease, run: RunState | None) -> bool:
        return (
            self.held is held
            and run is not None
            and self.since == run.since
            and self.lost == run.lotteries_lost
        )

    def is_provisional_to(self, made: int) -> bool:
        return self.provisional_since is not None and made <= self.provisional_since


class DomainOccupancy:
    """All leases in one domain, or some of them."""

    def __init__(self, everybody: list[LeaseOccupancy]) -> None:
        self.all = everybody
        found = {one.provisional_since for one in self.all if one.provisional_since is not None}
        self.provisional_since = sorted(found)  # the instants at which provisional work here began

    def provisional_since_threshold(self, precedence: Precedence | None) -> int | None:
        """From when on provisional work here began that yields to that rank; None: none does."""
        if precedence is None or not self.provisional_since:
            return None
        later = bisect_left(self.provisional_since, precedence[0])
        return self.provisional_since[later] if later < len(self.provisional_since) else None

    def without(self, runs: Container[RunKey]) -> "DomainOccupancy":
        """The same if all that these Runs hold were gone."""
        return DomainOccupancy([one for one in self.all if one.held.lease.run_key not in runs])


LEASE_OCCUPANCIES = VersionedCache[str, LeaseOccupancy]()  # by name of the lease


class OccupancyReader:
    """Takes leases in one domain apart."""

    def __init__(self, world: World, domain: Domain) -> None:
        self._world, self._domain = world, domain

    def all(self) -> list[LeaseOccupancy]:
        world, cached = self._world, LEASE_OCCUPANCIES.at(self._domain.release_version)
        names: dict[str, None] = {}
        for node in self._domain.nodes:
            names.update(world.leases_by_node.get(node, ()))
        if len(cached) > 2 * len(names) + 64:  # most of them are closed
            for name in [name for name in cached if name not in names]:
                del cached[name]
        return [self._occupancy(cached, world.posted_leases[name]) for name in names]

    def _occupancy(self, cached: dict[str, LeaseOccupancy], held: PostedLease) -> LeaseOccupancy:
        known = cached.get(held.lease.name)
        run = self._world.runs.get(held.lease.run_key)
        if known is not None and known.is_current(held, run):
            return known
        if run is None:
            return LeaseOccupancy(held, None, 0, tuple(self._stays(held, RELEASED, {})), None, None)
        policy, now = self._world.policy, self._world.now
        end, immune = self._end(run), immune_until(policy, run, now)
        malleable = run.shape is not None and run.shape.malleable
        loose = self._shrinkable(run) if malleable else {}
        found = LeaseOccupancy(
            held=held,
            since=run.since,
            lost=run.lotteries_lost,
            stays=tuple(self._stays(held, (end, end, min(end, immune)), loose)),
            notice=DrawNotice(immune, end, draw_notice_ms(policy, run.checkpoint_ms)),
            provisional_since=run.since if run.provisional else None,
        )
        if held.lease.role == "Active" and not malleable and not run.provisional:
            cached[held.lease.name] = found
        return found

    def _end(self, run: RunState) -> int:
        """What is held on sufferance lapses at the latest when its own promise is due: that counts, then."""
        end, lapse = certain_end(run.known_end, last_closing(self._world, run)), run.interim_until
        return end if lapse is None else min(end, lapse)

    def _shrinkable(self, run: RunState) -> dict[tuple[str, str], int]:
        """GPUs of its steps that lie wholly in this domain, by lease and node.

        A step that reaches into other domains is not counted, so no step is counted twice and what
        is counted here can be taken whatever other domains a slice has.
        """
        loose: dict[tuple[str, str], int] = {}
        for step in shrink_steps(self._world, run):
            if all(piece.node in self._domain.nodes for piece in step):
                for piece in step:
                    key = (piece.lease, piece.node)
                    loose[key] = loose.get(key, 0) + piece.mask.bit_count()
        return loose

    def _stays(
        self, held: PostedLease, ends: ReleaseTimes, loose: dict[tuple[str, str], int]
    ) -> Iterator[OccupiedGpus]:
        lease, nodes = held.lease, self._domain.nodes
        for node, mask in lease.slots:
            if node not in nodes:
                continue
            gpus = mask.bit_count()
            if lease.role == "Opportunistic":
                yield OccupiedGpus(node, (mask & ~nodes[node].spare).bit_count(), RELEASED)
            elif lease.role == "Spare":
                yield OccupiedGpus(node, gpus, (ends[0], ALWAYS, ALWAYS))
            else:
                free = loose.get((lease.name, node), 0)
                if free:
                    yield OccupiedGpus(node, free, (ends[0], ALWAYS, ALWAYS))
                yield OccupiedGpus(node, gpus - free, ends)


class OccupancyView:
    """Who stands on some nodes of a domain, as somebody sees it to whom some provisional work yields."""

    def __init__(
        self, tenants: DomainOccupancy, domain: Domain, usable: Sequence[str], threshold: int | None
    ) -> None:
        self.usable = usable
        self._places = {name: place for place, name in enumerate(usable)}
        self.notices: set[DrawNotice] = set()
        self._stays: list[OccupiedGpus] = []
        everywhere = len(usable) == len(domain.nodes)
        for one in tenants.all:
            stays: Iterable[OccupiedGpus] = one.stays
            if not everywhere:
                stays = [stay for stay in stays if stay.node in self._places]
            if threshold is not None and one.is_provisional_to(threshold):
                stays = [OccupiedGpus(node, gpus, RELEASED) for node, gpus, _ in stays]
            elif one.notice is not None and stays:
                self.notices.add(one.notice)
            self._stays += stays
        self.free = [max(0, domain.nodes[name].node.gpus - domain.nodes[name].foreign) for name in usable]
        for node, gpus, _ in self._stays:
            self.free[self._places[node]] -= gpus
        self._released: dict[Disruption, list[tuple[int, int, int]]] = {}

    def released(self, disruption: Disruption) -> list[tuple[int, int, int]]:
        """What comes free for certain, in order: the instant, the node's place, and the GPUs."""
        known = self._released.get(disruption)
        if known is None:
            places = self._places
            known = self._released[disruption] = sorted(
                [
                    (releases[disruption], places[node], gpus)
                    for node, gpus, releases in self._stays
                    if releases[disruption] < FOREVER
                ]
            )
        return known

    @cached_property
    def rooms(self) -> NodeAvailability:
        """GPUs on each node, as stays are released."""
        free = dict(zip(self._places, self.free, strict=True))
        return NodeAvailability(free, self._stays)

    @cached_property
    def longest_notice(self) -> int:
        return max((notice for _, _, notice in self.notices), default=0)


DOMAIN_OCCUPANCIES = VersionedCache[None, DomainOccupancy]()
# By nodes, and by what is left out: provisional work since then, or Runs.
OCCUPANCY_VIEWS = VersionedCache[tuple[tuple[str, ...], int | frozenset[RunKey] | None], OccupancyView]()


def domain_occupancy(world: World, domain: Domain) -> DomainOccupancy:
    """All who stand in the domain, listed once until a lease there changes."""
    cached = DOMAIN_OCCUPANCIES.at(domain.occupancy_version)
    occupancy = cached.get(None)
    if occupancy is None:
        occupancy = cached[None] = lease_occupancies(world, domain)
    return occupancy


def lease_occupancies(world: World, domain: Domain) -> DomainOccupancy:
    return DomainOccupancy(OccupancyReader(world, domain).all())


def occupancy_view(
    world: World, domain: Domain, usable: tuple[str, ...], threshold: int | None
) -> OccupancyView:
    """The same on some nodes, as somebody sees it, remembered as long."""
    cached = OCCUPANCY_VIEWS.at(domain.occupancy_version)
    view = cached.get((usable, threshold))
    if view is None:
        occupancy = domain_occupancy(world, domain)
        view = cached[usable, threshold] = OccupancyView(occupancy, domain, usable, threshold)
    return view


def occupancy_view_without(
    world: World, domain: Domain, usable: tuple[str, ...], gone: frozenset[RunKey]
) -> OccupancyView:
    """The same if all that these Runs hold were gone, remembered as long."""
    cached = OCCUPANCY_VIEWS.at(domain.occupancy_version)
    view = cached.get((usable, gone))
    if view is None:
        occupancy = domain_occupancy(world, domain).without(gone)
        view = cached[usable, gone] = OccupancyView(occupancy, domain, usable, None)
    return view
