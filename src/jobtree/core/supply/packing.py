"""Pack: which nodes of a domain carry a number of pods (P2, P3, P5).

Node by node, least left over first, ties by name, so that big holes stay whole. All pods of a Run are
of one size, so taking greedily never refuses what fits.
"""

from collections.abc import Collection

from jobtree.core.model.gpu_lease import Slots
from jobtree.core.supply.domain import Domain, NodeChoice
from jobtree.core.supply.node_slots import PodDemand


def pick_slots(domain: Domain, pods: int, demand: PodDemand, avoid: Collection[str] = ()) -> Slots | None:
    """Slots for that many pods in this domain, or None where they do not fit."""
    chosen = choose_nodes(candidate_nodes(domain, demand, avoid), pods, demand.size)
    if chosen is None:
        return None
    nodes, size, on_spares = domain.nodes, demand.size, demand.may_use_spares
    return tuple(
        (name, nodes[name].choose_slots(count * size, on_spares=on_spares)) for name, count in chosen
    )


def pick_slots_apart(domain: Domain, pods: int, demand: PodDemand, ranks: Collection[str]) -> Slots | None:
    """Slots for that many pods, on other nodes than the ranks as far as possible (P5)."""
    apart = pick_slots(domain, pods, demand, ranks)
    if apart is not None or not ranks:
        return apart
    elsewhere = sum(room * len(names) for _, room, names in candidate_nodes(domain, demand, ranks))
    beside = pick_slots(
        domain, pods - elsewhere, demand, [name for name in domain.nodes if name not in ranks]
    )
    if beside is None:
        return None
    return (pick_slots(domain, elsewhere, demand, ranks) or ()) + beside


def choose_nodes(among: list[NodeChoice], pods: int, size: int) -> list[tuple[str, int]] | None:
    """Nodes and the pods each takes, least left over first."""
    if len(among) == 1:
        return fill_nodes(*among[0][1:], pods)
    chosen: list[tuple[str, int]] = []
    taken = [0] * len(among)
    while pods:
        best: tuple[int, str, int] | None = None
        for index, (free, room, names) in enumerate(among):
            if taken[index] < len(names):
                left = free - min(room, pods) * size
                option = (left, names[taken[index]], index)
                if best is None or option < best:
                    best = option
        if best is None:
            return None
        _, name, index = best
        count = min(among[index][1], pods)
        chosen.append((name, count))
        taken[index] += 1
        pods -= count
    return chosen


def fill_nodes(room: int, names: list[str], pods: int) -> list[tuple[str, int]] | None:
    """The same where all nodes are alike: one after the other, by name."""
    full, rest = divmod(pods, room)
    if full + (rest > 0) > len(names):
        return None
    chosen = [(name, room) for name in names[:full]]
    return [*chosen, (names[full], rest)] if rest else chosen


def candidate_nodes(domain: Domain, demand: PodDemand, avoid: Collection[str]) -> list[NodeChoice]:
    """The domain's nodes that could take a pod, save those to be avoided."""
    found = domain.node_choices(demand)
    if not avoid:
        return found
    kept = ((free, room, [name for name in names if name not in avoid]) for free, room, names in found)
    return [option for option in kept if option[2]]
