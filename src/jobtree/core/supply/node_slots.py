"""Room on one node: which of its slots are free, and whether a pod may stand there.

A node's slots are bits of a mask. A slot is leased, kept as a spare, both (opportunistic work on a spare's
slot), or open; pods that are not Jobtree's take open ones, and nobody knows which. What a pod asks of a node
is a ``PodDemand``: how many fit is a matter of counts, who may stand there one of labels and taints.
"""

from typing import TYPE_CHECKING

import msgspec

from jobtree.api.kubernetes.node import Node
from jobtree.api.kubernetes.pod import Toleration, tolerates
from jobtree.core.model.gpu_lease import lowest_bits

if TYPE_CHECKING:
    from jobtree.core.supply.domain import Domain

UNLIMITED = 1 << 60

NodeSelector = tuple[tuple[str, str], ...]


class PodDemand(msgspec.Struct, frozen=True):
    """One pod as the packer sees it: its size, what else it asks of a node, and where it may stand."""

    size: int
    cpu_milli: int = 0
    memory_bytes: int = 0
    tolerations: tuple[Toleration, ...] = ()
    node_selector: NodeSelector = ()
    payer_selectors: NodeSelector = ()  # the envelope's selector
    may_use_spares: bool = False  # may stand on the slots of other Runs' spares

    @property
    def asks_only_gpus(self) -> bool:
        """Whether free GPUs alone say how many fit on a node where such a pod may stand."""
        return not (self.cpu_milli or self.memory_bytes or self.may_use_spares)

    def admits(self, node: Node) -> bool:
        return (
            selector_matches(node.labels, self.node_selector)
            and selector_matches(node.labels, self.payer_selectors)
            and tolerates(node.taints, self.tolerations)
        )


def selector_matches(labels: dict[str, str], selector: NodeSelector) -> bool:
    return all(value in ("*", labels.get(key)) for key, value in selector)


class NodeSlots:
    """One node: which slots are leased, kept as spares, or used by pods that are not Jobtree's."""

    __slots__ = (
        "cpu",
        "domain",
        "foreign",
        "free",
        "is_schedulable",
        "leased",
        "memory",
        "node",
        "slots",
        "spare",
    )

    def __init__(self, node: Node, domain: "Domain") -> None:
        self.node = node
        self.domain = domain
        self.slots = (1 << node.gpus) - 1  # mask: all of them
        self.leased = 0  # mask: Active or Opportunistic
        self.spare = 0  # mask: Spare
        self.foreign = 0  # GPUs of pods that are not Jobtree's
        self.cpu = UNLIMITED if node.cpu_milli is None else node.cpu_milli
        self.memory = UNLIMITED if node.memory_bytes is None else node.memory_bytes
        self.is_schedulable = node.ready and not node.cordoned and not node.failed  # P1
        self.free = 0
        self.recount()

    @property
    def free_mask(self) -> int:
        return self.slots & ~(self.leased | self.spare)

    @property
    def free_spare_mask(self) -> int:
        """Spare slots on which nothing else stands."""
        return self.spare & ~self.leased

    def set_slots(self, mask: int, role: str, sign: int) -> None:
        """Slots go under lease, or are given back."""
        if role == "Spare":
            self.spare = self.spare | mask if sign > 0 else self.spare & ~mask
        else:
            self.leased = self.leased | mask if sign > 0 else self.leased & ~mask

    def recount(self) -> None:
        free = (self.slots & ~(self.leased | self.spare)).bit_count() - self.foreign
        self.free = free if self.is_schedulable and free > 0 else 0

    def pod_capacity(self, demand: PodDemand) -> int:
        """Pods of that kind which fit now (P1); who may stand here is asked elsewhere."""
        free = self.free
        if demand.may_use_spares and self.is_schedulable:
            free += self.free_spare_mask.bit_count()
        pods = free // demand.size
        cpu, memory = demand.cpu_milli, demand.memory_bytes
        if cpu and pods * cpu > self.cpu:
            pods = self.cpu // cpu
        if memory and pods * memory > self.memory:
            pods = self.memory // memory
        return max(0, pods)

    def choose_slots(self, gpus: int, *, on_spares: bool) -> int:
        """The mask of that many slots, lowest first; spare slots only after the free ones."""
        free = self.free_mask
        if gpus == self.free == free.bit_count():
            return free
        mask = lowest_bits(free, min(gpus, self.free))
        if on_spares:
            mask |= lowest_bits(self.free_spare_mask, gpus - mask.bit_count())
        return mask
