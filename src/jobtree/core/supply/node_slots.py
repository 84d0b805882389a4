"""Tracks the slots of one node and computes how many pods of a kind it can take.

The slots of a node are bits of a mask. A slot is leased, a spare, both (opportunistic work on the slot of a
spare), or free. Foreign pods use free slots; which ones is not known, so only their GPUs are counted.
A ``PodDemand`` is what a pod requires of a node: labels and taints decide whether it may run there; GPUs, CPU
and memory decide how many such pods fit.
"""

import msgspec

from jobtree.api.kubernetes.node import Node
from jobtree.api.kubernetes.node_resources import Resources, capacity_of
from jobtree.api.kubernetes.pod import Toleration, tolerates
from jobtree.core.model.gpu_lease import lowest_bits
from jobtree.core.model.node_requirements import ANY_NODE, NodeRequirements

UNLIMITED = 1 << 60

NodeSelector = tuple[tuple[str, str], ...]


class PodDemand(msgspec.Struct, frozen=True, cache_hash=True):
    """What one pod requires of a node."""

    size: int
    cpu_milli: int = 0
    memory_bytes: int = 0
    tolerations: tuple[Toleration, ...] = ()
    node_selector: NodeSelector = ()
    payer_selectors: NodeSelector = ()  # the envelope's selector
    may_use_spares: bool = False  # may use the slots of other Runs' spares
    avoided_nodes: tuple[str, ...] = ()  # that refused pods of the Run (N3)
    others: Resources = ()  # resources besides CPU, memory and GPUs
    requirements: NodeRequirements = ANY_NODE

    @property
    def asks_only_gpus(self) -> bool:
        """Whether free GPUs alone decide how many such pods fit on a node that admits them."""
        return not (self.cpu_milli or self.memory_bytes or self.others or self.may_use_spares)

    def admits(self, node: Node) -> bool:
        return (
            node.name not in self.avoided_nodes
            and selector_matches(node.labels, self.node_selector)
            and selector_matches(node.labels, self.payer_selectors)
            and tolerates(node.taints, self.tolerations)
            and self.requirements.admits(node)
        )


def selector_matches(labels: dict[str, str], selector: NodeSelector) -> bool:
    return all(value in ("*", labels.get(key)) for key, value in selector)


class NodeSlots:
    """One node: which slots are leased or spares, and how many GPUs foreign pods use."""

    __slots__ = (
        "cpu",
        "foreign",
        "free",
        "is_schedulable",
        "leased",
        "memory",
        "node",
        "others",
        "slots",
        "spare",
    )

    def __init__(self, node: Node) -> None:
        self.node = node
        self.slots = (1 << node.gpus) - 1  # mask: all of them
        self.leased = 0  # mask: Active or Opportunistic
        self.spare = 0  # mask: Spare
        self.foreign = 0  # GPUs of foreign pods
        self.cpu = UNLIMITED if node.cpu_milli is None else node.cpu_milli
        self.memory = UNLIMITED if node.memory_bytes is None else node.memory_bytes
        self.others: dict[str, int] = {}  # what pods use of other resources
        self.is_schedulable = node.ready and not node.cordoned and not node.failed  # P1
        self.free = 0
        self.recount()

    @property
    def free_mask(self) -> int:
        return self.slots & ~(self.leased | self.spare)

    @property
    def free_spare_mask(self) -> int:
        """Spare slots that no opportunistic work uses."""
        return self.spare & ~self.leased

    @property
    def free_with_spares(self) -> int:
        """GPUs that are free or held by a spare alone, without those that foreign pods use."""
        if not self.is_schedulable:
            return 0
        return max(0, (self.free_mask | self.free_spare_mask).bit_count() - self.foreign)

    @property
    def foreign_on_spares(self) -> bool:
        """Whether foreign pods use GPUs of spares, whose standby pods ask for none (F1)."""
        return bool(self.spare) and self.foreign > self.free_mask.bit_count()

    def set_slots(self, mask: int, role: str, sign: int) -> None:
        """Marks slots as taken in that role; with sign −1, as released."""
        if role == "Spare":
            self.spare = self.spare | mask if sign > 0 else self.spare & ~mask
        else:
            self.leased = self.leased | mask if sign > 0 else self.leased & ~mask

    def recount(self) -> None:
        """Counts the free GPUs; a node that has lost GPUs may have leases on slots that it has no more."""
        taken = self.leased | self.spare
        free = min((self.slots & ~taken).bit_count(), self.node.gpus - taken.bit_count()) - self.foreign
        self.free = free if self.is_schedulable and free > 0 else 0

    def pod_capacity(self, demand: PodDemand) -> int:
        """Returns how many such pods fit now (P1), if the node admits them."""
        pods = (self.free_with_spares if demand.may_use_spares else self.free) // demand.size
        cpu, memory = demand.cpu_milli, demand.memory_bytes
        if cpu and pods * cpu > self.cpu:
            pods = self.cpu // cpu
        if memory and pods * memory > self.memory:
            pods = self.memory // memory
        for name, amount in demand.others:
            have = capacity_of(self.node.others, name)
            if have is not None and amount:
                pods = min(pods, (have - self.others.get(name, 0)) // amount)
        return max(0, pods)

    def use_others(self, others: Resources, pods: int) -> None:
        """Adds what so many pods use of other resources; with a negative number, removes it."""
        for name, amount in others:
            self.others[name] = self.others.get(name, 0) + amount * pods

    def choose_slots(self, gpus: int, *, on_spares: bool) -> int:
        """Returns the mask of that many slots, lowest first; spare slots only after the free ones."""
        free = self.free_mask
        if gpus == self.free == free.bit_count():
            return free
        mask = lowest_bits(free, min(gpus, self.free))
        if on_spares:
            mask |= lowest_bits(self.free_spare_mask, gpus - mask.bit_count())
        return mask
