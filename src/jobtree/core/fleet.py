"""The fleet: nodes, domains and flavors, indexed so that a question costs what it asks about.

Per domain, nodes stand in buckets by free GPUs, each bucket sorted by name. Per flavor, one sorted list
of (fresh, free, domain) gives the pack order of P3. Both are mended when a slot changes hands; nothing
is ever rebuilt. Answers about a domain are remembered until something in that domain changes.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush, merge
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from jobtree.api.nodes import Node
from jobtree.api.pods import Toleration, tolerates
from jobtree.core.lease import RunKey, Slots, lowest_bits
from jobtree.core.promise import Promise

UNLIMITED = 1 << 60

Selector = tuple[tuple[str, str], ...]
Option = tuple[int, int, list[str]]  # free GPUs, pods that fit, nodes by name


class Demand(msgspec.Struct, frozen=True):
    """One pod as the packer sees it: its size, what else it asks of a node, and where it may stand."""

    size: int
    cpu_milli: int = 0
    memory_bytes: int = 0
    tolerations: tuple[Toleration, ...] = ()
    node_selector: Selector = ()
    paid_on: Selector = ()  # the envelope's selector
    on_spares: bool = False  # may stand on the slots of other Runs' spares

    @property
    def plain(self) -> bool:
        """Whether free GPUs alone say how many fit on a node where such a pod may stand."""
        return not (self.cpu_milli or self.memory_bytes or self.on_spares)

    def admits(self, node: Node) -> bool:
        return (
            matches(node.labels, self.node_selector)
            and matches(node.labels, self.paid_on)
            and tolerates(node.taints, self.tolerations)
        )


def matches(labels: dict[str, str], selector: Selector) -> bool:
    return all(value in ("*", labels.get(key)) for key, value in selector)


class NodeState:
    """One node: which slots are leased, kept as spares, or used by pods that are not Jobtree's."""

    __slots__ = ("cpu", "domain", "foreign", "free", "leased", "memory", "node", "offers", "slots", "spare")

    def __init__(self, node: Node, domain: "Domain") -> None:
        self.node = node
        self.domain = domain
        self.slots = (1 << node.gpus) - 1  # mask: all of them
        self.leased = 0  # mask: Active or Opportunistic
        self.spare = 0  # mask: Spare
        self.foreign = 0  # GPUs of pods that are not Jobtree's
        self.cpu = UNLIMITED if node.cpu_milli is None else node.cpu_milli
        self.memory = UNLIMITED if node.memory_bytes is None else node.memory_bytes
        self.offers = node.ready and not node.cordoned and not node.failed  # P1
        self.free = 0
        self.recount()

    @property
    def open_mask(self) -> int:
        return self.slots & ~(self.leased | self.spare)

    @property
    def lendable_mask(self) -> int:
        """Spare slots on which nothing else stands."""
        return self.spare & ~self.leased

    def mark(self, mask: int, role: str, sign: int) -> None:
        """Slots go under lease, or are given back."""
        if role == "Spare":
            self.spare = self.spare | mask if sign > 0 else self.spare & ~mask
        else:
            self.leased = self.leased | mask if sign > 0 else self.leased & ~mask

    def recount(self) -> None:
        free = (self.slots & ~(self.leased | self.spare)).bit_count() - self.foreign
        self.free = free if self.offers and free > 0 else 0

    def room(self, demand: Demand) -> int:
        """Pods of that kind which fit now (P1); who may stand here is asked elsewhere."""
        free = self.free
        if demand.on_spares and self.offers:
            free += self.lendable_mask.bit_count()
        pods = free // demand.size
        cpu, memory = demand.cpu_milli, demand.memory_bytes
        if cpu and pods * cpu > self.cpu:
            pods = self.cpu // cpu
        if memory and pods * memory > self.memory:
            pods = self.memory // memory
        return max(0, pods)

    def choose(self, gpus: int, *, on_spares: bool) -> int:
        """The mask of that many slots, lowest first; spare slots only after the free ones."""
        free = self.open_mask
        if gpus == self.free == free.bit_count():
            return free
        mask = lowest_bits(free, min(gpus, self.free))
        if on_spares:
            mask |= lowest_bits(self.lendable_mask, gpus - mask.bit_count())
        return mask


class Census(NamedTuple):
    """GPUs of a domain, counted."""

    total: int
    leased: int  # Active or Opportunistic
    spare: int
    lent: int  # both: opportunistic work on a spare's slots
    foreign: int


class Domain:
    """An island of fast interconnect, for one flavor."""

    __slots__ = (
        "_admitted",
        "_census",
        "_options",
        "_placeable",
        "buckets",
        "capacity",
        "flavor",
        "free",
        "horizons",
        "in_use",
        "name",
        "nodes",
        "promises",
        "skylines",
        "unpaid_slots",
    )

    def __init__(self, name: str, flavor: str, skylines: dict[tuple[object, ...], Any]) -> None:
        self.name = name
        self.flavor = flavor
        self.skylines = skylines  # its flavor's
        self.nodes: dict[str, NodeState] = {}
        self.buckets: list[list[str]] = [[]]  # by free GPUs, sorted by name
        self.free = 0
        self.capacity = 0  # GPUs of nodes that are not failed
        self.in_use = 0  # slots under lease
        self.unpaid_slots = 0  # of them under Opportunistic leases
        self.promises: dict[RunKey, Promise] = {}  # that count on this domain
        self.horizons: dict[tuple[object, ...], Any] = {}  # remembered by horizon
        self._census: Census | None = None
        self._placeable: dict[Demand, int] = {}
        self._options: dict[Demand, list[Option]] = {}
        self._admitted: dict[tuple[object, ...], frozenset[str] | None] = {}

    def admitted(self, demand: Demand) -> frozenset[str] | None:
        """Names of the nodes where such a pod may stand and be paid; None means all of them."""
        key = (demand.tolerations, demand.node_selector, demand.paid_on)
        if key not in self._admitted:
            names = frozenset(name for name, state in self.nodes.items() if demand.admits(state.node))
            self._admitted[key] = None if len(names) == len(self.nodes) else names
        return self._admitted[key]

    def placeable(self, demand: Demand) -> int:
        """How many such pods fit here now (P2)."""
        known = self._placeable.get(demand)
        if known is None:
            known = self._placeable[demand] = self._count(demand)
        return known

    def _count(self, demand: Demand) -> int:
        if demand.plain and self.admitted(demand) is None:
            size = demand.size
            return sum([len(names) * (free // size) for free, names in enumerate(self.buckets) if names])
        return sum([pods * len(names) for _, pods, names in self.options(demand)])

    def options(self, demand: Demand) -> list[Option]:
        """The nodes that could take such a pod, grouped by free GPUs and by pods that fit."""
        known = self._options.get(demand)
        if known is None:
            known = self._options[demand] = self._group(demand)
        return known

    def _group(self, demand: Demand) -> list[Option]:
        names, size, buckets = self.admitted(demand), demand.size, self.buckets
        if demand.plain and names is None:
            return [
                (free, free // size, buckets[free]) for free in range(size, len(buckets)) if buckets[free]
            ]
        grouped: dict[tuple[int, int], list[str]] = {}
        for bucket in buckets[0 if demand.on_spares else size :]:
            for name in bucket:
                if names is None or name in names:
                    state = self.nodes[name]
                    pods = state.room(demand)
                    free = state.free + (state.lendable_mask.bit_count() if demand.on_spares else 0)
                    if pods:
                        grouped.setdefault((free, pods), []).append(name)
        return [(free, pods, sorted(found)) for (free, pods), found in sorted(grouped.items())]

    def reach(self, demand: Demand) -> int:
        """At most so many such pods fit here, whatever else stands in their way."""
        return (self.capacity if demand.on_spares else self.free) // demand.size

    def capacity_pods(self, demand: Demand) -> int:
        """Pods that would fit if nothing ran here: what the domain could ever hold."""
        names = self.admitted(demand)
        return sum(
            self.nodes[name].node.gpus // demand.size
            for name in (self.nodes if names is None else names)
            if not self.nodes[name].node.failed
        )

    def usable_nodes(self, demand: Demand) -> list[str]:
        names = self.admitted(demand)
        return sorted(
            name
            for name in (self.nodes if names is None else names)
            if self.nodes[name].offers and self.nodes[name].node.gpus >= demand.size
        )

    def census(self) -> Census:
        """Who uses how much; counted again only after something changed here."""
        if self._census is None:
            states = self.nodes.values()
            self._census = Census(
                total=sum(state.node.gpus for state in states),
                leased=sum(state.leased.bit_count() for state in states),
                spare=sum(state.spare.bit_count() for state in states),
                lent=sum((state.spare & state.leased).bit_count() for state in states),
                foreign=sum(min(state.foreign, state.open_mask.bit_count()) for state in states),
            )
        return self._census

    def forget(self) -> None:
        """Something here changed: answers remembered about free slots no longer hold."""
        self._census = None
        self._placeable.clear()
        self._options.clear()
        self.forget_horizons()

    def forget_horizons(self) -> None:
        """Who will be gone from here when is no longer what it was."""
        self.horizons.clear()
        self.skylines.clear()

    def forget_nodes(self) -> None:
        self.forget()
        self._admitted.clear()

    def recount(self, state: NodeState) -> None:
        """One of its nodes changed: put it in the bucket of its present free count."""
        before = state.free
        state.recount()
        after = state.free
        if before != after:
            name, bucket = state.node.name, self.buckets[before]
            del bucket[bisect_left(bucket, name)]
            insort(self.buckets[after], name)
            self.free += after - before

    def add_to_bucket(self, state: NodeState) -> None:
        while len(self.buckets) <= state.node.gpus:
            self.buckets.append([])
        insort(self.buckets[state.free], state.node.name)


class Flavor:
    """All domains that have GPUs of one kind."""

    __slots__ = (
        "_largest",
        "_sizes",
        "asked",
        "biggest_node",
        "domains",
        "eager",
        "free",
        "gains",
        "name",
        "order",
        "served",
        "skylines",
        "spare_slots",
        "unpaid_slots",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.domains: dict[str, Domain] = {}
        self.skylines: dict[tuple[object, ...], Any] = {}  # remembered by skyline
        self.order: list[tuple[int, int, str]] = []  # (fresh, free, domain)
        self.free = 0
        self.biggest_node = 0
        self.spare_slots = 0  # under Spare leases
        self.unpaid_slots = 0  # under Opportunistic leases
        self.gains = 0  # counts every event that could let a waiting Run start
        self.eager: dict[tuple[str, str], None] = {}  # Runs that may grow as soon as there is room and money
        self.asked = -1  # the gains at which all of them were last asked
        self.served = -1  # the gains at which all who wait were last asked
        self._largest: dict[Demand, int] = {}
        self._sizes: dict[int, int] = {}  # nodes by their GPUs

    def largest(self, demand: Demand) -> int:
        """Pods that the largest domain could hold if it were empty."""
        known = self._largest.get(demand)
        if known is None:
            known = 0
            for domain in sorted(self.domains.values(), key=lambda domain: -domain.capacity):
                if domain.capacity // demand.size <= known:
                    break  # nor could any that follows hold more
                known = max(known, domain.capacity_pods(demand))
            self._largest[demand] = known
        return known

    def count_node(self, gpus: int, sign: int) -> None:
        """A node of that many GPUs came (or went)."""
        self._largest.clear()
        self._sizes[gpus] = self._sizes.get(gpus, 0) + sign
        if not self._sizes[gpus]:
            del self._sizes[gpus]
        self.biggest_node = max(self._sizes, default=0)

    def in_pack_order(self, gpus: int) -> Iterator[Domain]:
        """Domains with at least that many free GPUs: in use first, least left over first (P3).

        Whatever is tried between two steps must have been taken back by the second.
        """
        order = self.order
        for fresh in (0, 1):
            at = bisect_left(order, (fresh, gpus, ""))
            while at < len(order) and order[at][0] == fresh:
                yield self.domains[order[at][2]]
                at += 1

    def roomiest(self, demand: Demand) -> Iterator[Domain]:
        """Domains that hold such pods, most of them first, ties by name.

        No more pods fit than free GPUs allow, so those with too few free are not even looked at.
        """
        found: list[tuple[int, str]] = []
        for domain in self._by_reach(demand):
            while found and -found[0][0] > domain.reach(demand):
                yield self.domains[heappop(found)[1]]
            pods = domain.placeable(demand)
            if pods:
                heappush(found, (-pods, domain.name))
        while found:
            yield self.domains[heappop(found)[1]]

    def _by_reach(self, demand: Demand) -> Iterator[Domain]:
        """Domains by the pods that they hold at most, most first."""
        if demand.on_spares:
            yield from sorted(self.domains.values(), key=lambda domain: -domain.reach(demand))
            return
        fresh = bisect_left(self.order, (1,))
        halves = (reversed(self.order[:fresh]), reversed(self.order[fresh:]))
        for _, free, name in merge(*halves, key=itemgetter(1), reverse=True):
            if free < demand.size:
                return
            yield self.domains[name]


class Fleet:
    """All nodes, by name, and their flavors and domains."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeState] = {}
        self.flavors: dict[str, Flavor] = {}

    def flavor(self, name: str) -> Flavor:
        found = self.flavors.get(name)
        if found is None:
            found = self.flavors[name] = Flavor(name)
        return found

    def add(self, node: Node) -> NodeState:
        """Add a node on which nothing runs yet; the caller leases what is already in use."""
        flavor = self.flavor(node.flavor)
        where = str(node.domain)
        domain = flavor.domains.get(where)
        if domain is None:
            domain = flavor.domains[where] = Domain(where, node.flavor, flavor.skylines)
            insort(flavor.order, (1, 0, domain.name))
        state = self.nodes[node.name] = NodeState(node, domain)
        before = self._entry(domain)
        domain.nodes[node.name] = state
        domain.add_to_bucket(state)
        domain.free += state.free
        domain.capacity += 0 if node.failed else node.gpus
        domain.forget_nodes()
        self._reorder(flavor, domain, before)
        flavor.count_node(node.gpus, 1)
        flavor.gains += 1
        return state

    def remove(self, name: str) -> None:
        """Remove a node whose leases were released before."""
        state = self.nodes.pop(name)
        domain = state.domain
        flavor = self.flavors[domain.flavor]
        before = self._entry(domain)
        bucket = domain.buckets[state.free]
        del bucket[bisect_left(bucket, name)]
        del domain.nodes[name]
        domain.free -= state.free
        domain.capacity -= 0 if state.node.failed else state.node.gpus
        domain.forget_nodes()
        self._reorder(flavor, domain, before)
        if not domain.nodes:
            del flavor.domains[domain.name]
            flavor.order.remove(self._entry(domain))
        flavor.count_node(state.node.gpus, -1)

    def occupy(self, slots: Slots, role: str, cpu: int, memory: int, size: int) -> None:
        """Slots go under lease; cpu and memory are what one pod of ``size`` GPUs takes besides."""
        self._lease(slots, role, (cpu, memory, size), 1)

    def vacate(self, slots: Slots, role: str, cpu: int, memory: int, size: int) -> None:
        """The exact inverse of occupy."""
        self._lease(slots, role, (cpu, memory, size), -1)

    def load_foreign(self, name: str, gpus: int, cpu: int, memory: int) -> None:
        """A pod that is not Jobtree's came (or went, with negative figures)."""
        state = self.nodes.get(name)
        if state is None:
            return
        flavor = self.flavors[state.domain.flavor]
        entry = self._entry(state.domain)
        state.foreign += gpus
        state.cpu -= cpu
        state.memory -= memory
        state.domain.recount(state)
        state.domain.forget()
        self._reorder(flavor, state.domain, entry)
        flavor.gains += 1

    def _lease(self, slots: Slots, role: str, load: tuple[int, int, int], sign: int) -> None:
        cpu, memory, size = load
        touched: dict[Domain, tuple[int, int, str]] = {}
        for name, mask in slots:
            state = self.nodes.get(name)
            if state is None:
                continue  # the node is gone; its leases are closed by the next plan
            domain = state.domain
            if domain not in touched:
                touched[domain] = self._entry(domain)
            gpus = mask.bit_count()
            if cpu or memory:
                pods = sign * -(-gpus // size)
                state.cpu -= cpu * pods
                state.memory -= memory * pods
            state.mark(mask, role, sign)
            domain.recount(state)
            domain.in_use += sign * gpus
        for domain, entry in touched.items():
            domain.forget()
            self._reorder(self.flavors[domain.flavor], domain, entry)
        if role != "Active":
            self._count_roles(slots, role, sign)

    def _count_roles(self, slots: Slots, role: str, sign: int) -> None:
        for name, mask in slots:
            state = self.nodes.get(name)
            if state is None:
                continue
            flavor = self.flavors[state.domain.flavor]
            if role == "Spare":
                flavor.spare_slots += sign * mask.bit_count()
            else:
                flavor.unpaid_slots += sign * mask.bit_count()
                state.domain.unpaid_slots += sign * mask.bit_count()

    def _entry(self, domain: Domain) -> tuple[int, int, str]:
        return (0 if domain.in_use else 1, domain.free, domain.name)

    def _reorder(self, flavor: Flavor, domain: Domain, before: tuple[int, int, str]) -> None:
        after = self._entry(domain)
        if after != before:
            del flavor.order[bisect_left(flavor.order, before)]
            insort(flavor.order, after)
            flavor.free += after[1] - before[1]


def total_placeable(domains: Iterable[Domain], demand: Demand) -> int:
    return sum(domain.placeable(demand) for domain in domains)
