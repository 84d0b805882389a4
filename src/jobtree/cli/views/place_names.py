"""Formats domains, nodes and slots briefly."""

from collections.abc import Iterable

from jobtree.api.schema.quantities import format_slots
from jobtree.core import GpuLease, World
from jobtree.messages.wording import ranges


class Places:
    """The names of the domains of a world: the fabric alone if that is unique, else the full name."""

    def __init__(self, world: World) -> None:
        self.world = world
        full = {domain.name for domain in world.fleet.domain_by_node.values()}
        short = {name: name.rpartition("/")[2] for name in full}
        unique = len(set(short.values())) == len(full)
        self._names = short if unique else {name: name for name in full}

    def domain(self, node: str) -> str:
        """Returns the domain of a node, or ? if the node is gone."""
        domain = self.world.fleet.domain_by_node.get(node)
        return self._names[domain.name] if domain else "?"

    def called(self, domain: str) -> str:
        """Returns the short name of a domain, given its full name."""
        return self._names.get(domain, domain)

    def domain_with_nodes(self, domain: str, nodes: Iterable[str]) -> str:
        """``domain=B (nodes b01-b08)``."""
        return f"domain={self.called(domain)} (nodes {ranges(nodes) or 'none'})"

    def nodes(self, leases: Iterable[GpuLease]) -> dict[str, set[str]]:
        """Returns the domains in which these leases hold slots, with the nodes in each."""
        nodes: dict[str, set[str]] = {}
        for lease in leases:
            for node, _ in lease.slots:
                nodes.setdefault(self.domain(node), set()).add(node)
        return dict(sorted(nodes.items()))

    def domains(self, leases: Iterable[GpuLease]) -> str:
        """``nv-a, nv-b``."""
        return ", ".join(self.nodes(leases))

    def where(self, leases: Iterable[GpuLease]) -> str:
        """``nv-a (a01-a04), nv-b (b01)``."""
        return ", ".join(f"{domain} ({ranges(names)})" for domain, names in self.nodes(leases).items())


def slots_of(leases: Iterable[GpuLease]) -> str:
    """Returns all slots, with consecutive nodes joined: ``a01-a04#0-7, a05#0-3``."""
    masks: dict[str, int] = {}
    for lease in leases:
        for node, mask in lease.slots:
            masks[node] = masks.get(node, 0) | mask
    by_slots: dict[str, list[str]] = {}
    for node, mask in sorted(masks.items()):
        for text in format_slots("", mask):
            by_slots.setdefault(text, []).append(node)
    return ", ".join(
        f"{part}{slots}" for slots, nodes in by_slots.items() for part in ranges(nodes).split(", ")
    )
