"""Packing against brute force: with one unlimited payer, a gang is refused only if it fits nowhere."""

from functools import cache
from itertools import combinations
from math import gcd
from random import Random
from typing import NamedTuple

from hypothesis import given, strategies as st

from jobtree.core.model.gpu_lease import GpuLease
from tests.property.examples import examples
from tests.property.random_histories import SEEDS, FleetNode, random_fleet
from tests.unit.core.build import budget, foreign_pod, run, template
from tests.unit.core.lab import Lab

UNLIMITED = budget("org", 1_000_000)


class Gang(NamedTuple):
    total: int
    group: int | None
    spread: bool
    spares: int
    tolerant: bool
    per_pod: int | None

    @classmethod
    def random(cls, dice: Random) -> "Gang":
        total = dice.choice((1, 2, 3, 4, 6, 8, 9, 12, 16))
        group = dice.choice((None, None, *range(1, total + 1)))
        common = gcd(group or total, total)
        per_pod = dice.choice((None, None, *(size for size in (1, 2, 4) if common % size == 0)))
        return cls(total, group, dice.random() < 0.7, dice.choice((0, 0, 1, 2)), dice.random() < 0.5, per_pod)

    @property
    def groups(self) -> list[int]:
        size = self.group or self.total
        return [min(size, self.total - done) for done in range(0, self.total, size)]


class PackingCluster:
    """A fleet on which gangs start and end; its free GPUs are counted independently of the core."""

    def __init__(self, fleet: list[FleetNode]) -> None:
        self.fleet = fleet
        self.lab = Lab(UNLIMITED, [node.node() for node in fleet])
        for node in fleet:
            if node.foreign_gpus:
                self.lab.put(foreign_pod(node.name, node.foreign_gpus))
        self.count = 0

    def free(self, node: FleetNode) -> int:
        leased = 0
        for record in self.lab.records.values():
            leased |= dict(record.lease.slots).get(node.name, 0) if record.end is None else 0
        return 0 if node.cordoned else node.gpus - node.foreign_gpus - leased.bit_count()

    def pod_size(self, gang: Gang) -> int:
        """P2: a group that fits on a node is one pod if groups are equal, else the least wasteful size."""
        biggest = max(node.gpus for node in self.fleet)
        group = gang.group or gang.total
        if gang.per_pod is not None or (group <= biggest and gang.total % group == 0):
            return gang.per_pod or group
        sizes = [size for size in range(biggest, 0, -1) if gcd(group, gang.total) % size == 0]
        return min(sizes, key=lambda size: biggest - biggest // size * size)

    def rooms(self, gang: Gang) -> dict[str, int]:
        """Returns the pods that each domain can take now."""
        size = self.pod_size(gang)
        rooms: dict[str, int] = {}
        for node in self.fleet:
            pods = self.free(node) // size if gang.tolerant or not node.tainted else 0
            rooms[node.domain] = rooms.get(node.domain, 0) + pods
        return rooms

    def submit(self, gang: Gang) -> list[GpuLease]:
        name = f"g{self.count}"
        self.count += 1
        gang_run = run(
            name,
            "org",
            gang.total,
            group=gang.group,
            spread=gang.spread,
            spares=gang.spares,
            per_pod=gang.per_pod,
            template=template(tolerates="dedicated") if gang.tolerant else None,
        )
        self.lab.submit(gang_run)
        leases = self.lab.leases(name)
        if not leases:
            self.lab.world.drop_run(("ns", name))  # it must not start later
        return leases

    def finish_one(self, dice: Random) -> None:
        running = sorted(key[1] for key, state in self.lab.world.runs.items() if state.phase == "Running")
        if running:
            self.lab.finish(dice.choice(running))


def fits(gang: Gang, size: int, rooms: dict[str, int]) -> bool:
    """Whether the gang can be placed in any way."""
    if not gang.spread:
        return any(pods * size >= gang.total for pods in rooms.values())
    if gang.group is None:
        return sum(rooms.values()) * size >= gang.total

    @cache
    def place(groups: tuple[int, ...], left: tuple[int, ...]) -> bool:
        if not groups:
            return True
        pods = groups[0] // size
        return any(
            place(groups[1:], (*left[:at], room - pods, *left[at + 1 :]))
            for at, room in enumerate(left)
            if room >= pods
        )

    return place(tuple(gang.groups), tuple(sorted(rooms.values())))


def fewest_domains(pods: int, rooms: dict[str, int]) -> int:
    return next(
        count
        for count in range(1, len(rooms) + 1)
        if any(sum(chosen) >= pods for chosen in combinations(rooms.values(), count))
    )


def random_h100_fleet(dice: Random) -> list[FleetNode]:
    return [node._replace(flavor="H100-80GB") for node in random_fleet(dice)]


@examples(300)
@given(SEEDS, st.lists(SEEDS, min_size=1, max_size=8))
def test_gang_is_refused_only_if_it_fits_nowhere(fleet: int, gangs: list[int]) -> None:
    cluster = PackingCluster(random_h100_fleet(Random(fleet)))
    for seed in gangs:
        gang = Gang.random(Random(seed))
        size, rooms = cluster.pod_size(gang), cluster.rooms(gang)
        leases = cluster.submit(gang)
        assert bool(leases) == fits(gang, size, rooms), (gang, size, rooms)
        if seed % 4 == 0:
            cluster.finish_one(Random(seed))


@examples(200)
@given(SEEDS, st.lists(SEEDS, min_size=1, max_size=6))
def test_ungrouped_gang_spills_over_the_fewest_domains(fleet: int, gangs: list[int]) -> None:
    cluster = PackingCluster(random_h100_fleet(Random(fleet)))
    for seed in gangs:
        gang = Gang.random(Random(seed))._replace(group=None, spread=True, per_pod=1)
        rooms = cluster.rooms(gang)
        leases = [lease for lease in cluster.submit(gang) if lease.role == "Active"]
        if leases:
            domains = {node.rpartition("-")[0] for lease in leases for node, _ in lease.slots}
            assert len(domains) == fewest_domains(gang.total, rooms)
            assert len({lease.group for lease in leases}) == len(domains)


@examples(200)
@given(SEEDS, st.lists(SEEDS, min_size=1, max_size=6))
def test_gang_takes_the_used_domain_with_the_fewest_gpus_left_over(fleet: int, gangs: list[int]) -> None:
    cluster = PackingCluster([node._replace(tainted=False) for node in random_h100_fleet(Random(fleet))])
    for seed in gangs:
        gang = Gang.random(Random(seed))._replace(group=None, spread=False, spares=0)
        size, rooms = cluster.pod_size(gang), cluster.rooms(gang)
        used = {
            node.rpartition("-")[0]
            for posted in cluster.lab.world.posted_leases.values()
            for node, _ in posted.lease.slots
        }
        free = {
            domain: sum(cluster.free(node) for node in cluster.fleet if node.domain == domain)
            for domain in rooms
        }
        fitting = [domain for domain, pods in rooms.items() if pods * size >= gang.total]
        leases = cluster.submit(gang)
        if leases:
            best = min(fitting, key=lambda domain: (domain not in used, free[domain], domain))
            assert {node.rpartition("-")[0] for lease in leases for node, _ in lease.slots} == {best}


@examples(200)
@given(SEEDS, st.lists(SEEDS, min_size=1, max_size=6))
def test_spares_are_placed_apart_from_ranks_when_they_fit(fleet: int, gangs: list[int]) -> None:
    cluster = PackingCluster(random_h100_fleet(Random(fleet)))
    for seed in gangs:
        gang = Gang.random(Random(seed))._replace(group=None, spread=False, spares=2)
        size, rooms = cluster.pod_size(gang), cluster.rooms(gang)
        leases = cluster.submit(gang)
        ranks = {node for lease in leases if lease.role == "Active" for node, _ in lease.slots}
        standby = [(node, mask) for lease in leases if lease.role == "Spare" for node, mask in lease.slots]
        spare_gpus = sum(mask.bit_count() for _, mask in standby)
        assert spare_gpus == (2 * size if max(rooms.values()) * size >= gang.total + 2 * size else 0)
        beside = [node for node, _ in standby if node in ranks]
        if beside:  # then no other node of the domain has room for a pod
            (domain,) = {node.rpartition("-")[0] for node in ranks}
            others = [node for node in cluster.fleet if node.domain == domain and node.name not in ranks]
            assert all(cluster.free(node) < size for node in others if gang.tolerant or not node.tainted)
