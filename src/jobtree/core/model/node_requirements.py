"""What one pod requires of a node besides GPUs: node affinity, and room on it if nothing runs there (N2)."""

import msgspec

from jobtree.api.kubernetes.node import Node
from jobtree.api.kubernetes.node_affinity import NodeTerm
from jobtree.api.kubernetes.node_resources import Resources, capacity_of


class NodeRequirements(msgspec.Struct, frozen=True, cache_hash=True):
    """CPU is in thousandths; no terms: any node."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    others: Resources = ()
    affinity: tuple[NodeTerm, ...] = ()

    def admits(self, node: Node) -> bool:
        """Whether such a pod may run on the node, and fits there if nothing else runs."""
        return not self.misfit(node)

    def misfit(self, node: Node) -> str:
        """Why such a pod can never run on the node, with the figures; empty: it can."""
        if self.affinity and not any(term.matches(node.name, node.labels) for term in self.affinity):
            return "its node affinity excludes them"
        if node.cpu_milli is not None and self.cpu_milli > node.cpu_milli:
            return f"a pod needs {self.cpu_milli}m of cpu, they have {node.cpu_milli}m"
        if node.memory_bytes is not None and self.memory_bytes > node.memory_bytes:
            return f"a pod needs {self.memory_bytes} bytes of memory, they have {node.memory_bytes}"
        for name, amount in self.others:
            have = capacity_of(node.others, name)
            if have is not None and amount > have:
                return f"a pod needs {amount} of {name}, they have {have}"
        return ""


ANY_NODE = NodeRequirements()
