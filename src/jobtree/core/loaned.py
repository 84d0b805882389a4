"""Loaned: the place that could come free if an owner's family gave back all that it pays for (C11).

What is recalled may be demoted, and then it gives way: with all that its Run holds, and all that started
together with it (C13, J3). Counted per node, whatever is promised there: an answer that promises too much
and never too little.
"""

from jobtree.core.domain import Domain
from jobtree.core.giveway import loans
from jobtree.core.runs import RunState
from jobtree.core.world import World

Owner = tuple[str, str]  # and the flavor


class Loaned:
    """GPUs of Runs that an owner pays for, as things stand: ask anew when anything has changed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._by_domain: dict[Owner, dict[str, dict[str, int]]] = {}
        self._unpaid: dict[str, int] = {}

    def domains(self, state: RunState) -> dict[str, dict[str, int]]:
        """GPUs by domain and node that could come free for a Run of this owner."""
        key = (state.owner, state.flavor)
        known = self._by_domain.get(key)
        if known is None:
            known = self._by_domain[key] = self._found(state)
        return known

    def _found(self, state: RunState) -> dict[str, dict[str, int]]:
        world, found = self._world, dict[str, dict[str, int]]()
        lent = {lease.run for lease in loans(world, state, world.now)}
        gone = {one.key: one for key in lent for one in world.kin.members(world.runs[key])}
        for one in gone.values():
            for lease in one.leases.values():
                for node, mask in lease.slots if lease.role != "Opportunistic" else ():
                    known = world.fleet.nodes.get(node)
                    if known is not None and known.domain.flavor == state.flavor:
                        by_node = found.setdefault(known.domain.name, {})
                        by_node[node] = by_node.get(node, 0) + mask.bit_count()
        return found

    def more_pods(self, domain: Domain, by_node: dict[str, int], size: int) -> int:
        """How many more pods would fit here now than if only unpaid work went."""
        more = 0
        for node, gpus in by_node.items():
            open_now = domain.nodes[node].free + self._unpaid_on(node)
            more += (open_now + gpus) // size - open_now // size
        return more

    def _unpaid_on(self, node: str) -> int:
        known = self._unpaid.get(node)
        if known is None:
            held = (self._world.held[name].lease for name in self._world.by_node.get(node, ()))
            unpaid = (lease for lease in held if lease.role == "Opportunistic")
            known = self._unpaid[node] = sum(dict(lease.slots)[node].bit_count() for lease in unpaid)
        return known
