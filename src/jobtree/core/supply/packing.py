"""Chooses the nodes of a domain that take a number of pods (P2, P3, P5).

Nodes are filled one by one: first the node with the fewest GPUs left over, ties by name, so that nodes with
many free GPUs keep them. All pods of a Run have one size, so the greedy choice never refuses pods that fit.
"""

from collections.abc import Collection

from jobtree.core.model.gpu_lease import Slots
from jobtree.core.supply.domain import Domain, NodeChoice
from jobtree.core.supply.node_slots import PodDemand


def pick_slots(domain: Domain, pods: int, demand: PodDemand, avoid: Collection[str] = ()) -> Slots | None:
    """Returns slots for that many pods in this domain, or None if they do not fit."""
    chosen = choose_nodes(candidate_nodes(domain, demand, avoid), pods, demand.size)
    if chosen is None:
        return None
    nodes, size, on_spares = domain.nodes, demand.size, demand.may_use_spares
    return tuple(
        (name, nodes[name].choose_slots(count * size, on_spares=on_spares)) for name, count in chosen
    )


def pick_slots_apart(domain: Domain, pods: int, demand: PodDemand, ranks: Collection[str]) -> Slots | None:
    """Returns slots for that many pods, on other nodes than the ranks as far as possible (P5)."""
    apart = pick_slots(domain, pods, demand, ranks)
    if apart is not None or not ranks:
        return apart
    pods_apart = sum(room * len(names) for _, room, names in candidate_nodes(domain, demand, ranks))
    on_nodes_of_ranks = pick_slots(
        domain, pods - pods_apart, demand, [name for name in domain.nodes if name not in ranks]
    )
    if on_nodes_of_ranks is None:
        return None
    return (pick_slots(domain, pods_apart, demand, ranks) or ()) + on_nodes_of_ranks


def choose_nodes(choices: list[NodeChoice], pods: int, size: int) -> list[tuple[str, int]] | None:
    """Returns nodes and the pods that each takes, fewest GPUs left over first; None if they do not fit."""
    if len(choices) == 1:
        return fill_nodes(*choices[0][1:], pods)
    chosen: list[tuple[str, int]] = []
    taken = [0] * len(choices)
    while pods:
        best: tuple[int, str, int] | None = None
        for index, (free, room, names) in enumerate(choices):
            if taken[index] < len(names):
                left = free - min(room, pods) * size
                option = (left, names[taken[index]], index)
                if best is None or option < best:
                    best = option
        if best is None:
            return None
        _, name, index = best
        count = min(choices[index][1], pods)
        chosen.append((name, count))
        taken[index] += 1
        pods -= count
    return chosen


def fill_nodes(room: int, names: list[str], pods: int) -> list[tuple[str, int]] | None:
    """The same for nodes of which each takes ``room`` pods: one after the other, by name."""
    full, rest = divmod(pods, room)
    if full + (rest > 0) > len(names):
        return None
    chosen = [(name, room) for name in names[:full]]
    return [*chosen, (names[full], rest)] if rest else chosen


def candidate_nodes(domain: Domain, demand: PodDemand, avoid: Collection[str]) -> list[NodeChoice]:
    """Returns the nodes of the domain that could take a pod, except those to avoid."""
    choices = domain.node_choices(demand)
    if not avoid:
        return choices
    allowed = ((free, room, [name for name in names if name not in avoid]) for free, room, names in choices)
    return [choice for choice in allowed if choice[2]]
