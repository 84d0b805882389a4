"""The shape of a gang: the part of a Run's spec that cover, packing and the queue read, as integers."""

from functools import lru_cache
from math import gcd

import msgspec

from jobtree.api.kinds.run import RunSpec
from jobtree.api.kubernetes.pod import Toleration, template_requests
from jobtree.api.schema.quantities import parse_duration
from jobtree.core.model.node_requirements import NodeRequirements


class GangShape(msgspec.Struct, frozen=True):
    flavor: str
    total: int
    min: int
    max: int
    step: int  # 0: a fixed gang
    desired: int
    group: int  # 0: not grouped
    spread: bool
    spares: int  # standby pods per group
    gpus_per_pod: int  # 0: not declared
    checkpoint: int | None
    rendezvous: bool  # running ranks keep running when others start or stop
    max_duration: int | None
    allow_borrow: bool
    max_borrow: int | None
    sponsors: tuple[str, ...]
    allow_opportunistic: bool
    cpu_milli: int
    memory_bytes: int
    tolerations: tuple[Toleration, ...]
    node_selector: tuple[tuple[str, str], ...]
    requirements: NodeRequirements

    @property
    def malleable(self) -> bool:
        return self.step > 0

    @property
    def may_grow(self) -> bool:
        """Whether the Run keeps its work when it is resized (E1)."""
        return self.malleable and (self.rendezvous or self.checkpoint is not None)

    def widths(self, at_most: int | None = None) -> range:
        """The widths at which it may start, widest first (P7); with ``at_most``, those that are no wider."""
        step, widest = self.step or 1, min(self.total, self.desired)
        if at_most is not None and at_most < widest:
            widest -= -(-(widest - at_most) // step) * step
        return range(widest, self.min - 1, -step)

    def groups(self, width: int) -> list[int]:
        """The GPUs of each group at that width; the last group may be smaller (P4)."""
        if not self.group:
            return [width]
        full, rest = divmod(width, self.group)
        return [self.group] * full + ([rest] if rest else [])

    def pod_size(self, biggest_node: int) -> int:
        """The GPUs of one pod, if the biggest node of the flavor has that many (P2).

        A group that fits on one node is one pod, unless the Run is malleable and ungrouped: then its width
        changes by less than the whole.
        """
        if self.gpus_per_pod:
            return self.gpus_per_pod
        node = max(1, biggest_node)
        group = self.group or self.total
        common = gcd(group, self.total)
        if self.step:
            common = gcd(common, self.min, self.step)
        if common == group <= node and (self.group or not self.malleable):
            return group
        return least_wasteful_divisor(common, node)


def default_pod_size(gpus: int, biggest_node: int) -> int:
    """The GPUs of one pod of a fixed, ungrouped gang that declares no size (P2)."""
    return gpus if gpus <= biggest_node else least_wasteful_divisor(gpus, biggest_node)


@lru_cache(maxsize=1_024)
def least_wasteful_divisor(number: int, node: int) -> int:
    """The divisor that leaves the fewest GPUs of a node unused; of equals, the largest."""
    divisors = [size for size in range(1, min(number, node) + 1) if number % size == 0]
    return min(divisors, key=lambda size: (node % size, -size))


def gang_shape(spec: RunSpec) -> GangShape | None:
    """The gang that the spec of a Run asks for; None if it asks for no GPUs of its own."""
    resources, flexible, funding = spec.resources, spec.malleable, spec.funding
    if resources is None or not resources.total_gpus:
        return None
    total = resources.total_gpus
    requests = template_requests(spec.template.document() if spec.template is not None else {})
    runtime = spec.runtime
    return GangShape(
        flavor=resources.gpu_type or "",
        total=total,
        min=flexible.min_total_gpus if flexible else total,
        max=flexible.max_total_gpus if flexible else total,
        step=flexible.step_gpus if flexible else 0,
        desired=desired_width(spec),
        group=spec.locality.group_gpus or 0,
        spread=spec.locality.allow_cross_group_spread,
        spares=spec.spares if spec.spares is not None else spec.spares_per_group or 0,
        gpus_per_pod=resources.gpus_per_pod or 0,
        checkpoint=parse_duration(runtime.checkpoint) if runtime.checkpoint else None,
        rendezvous=runtime.on_resize == "Rendezvous",
        max_duration=parse_duration(runtime.max_duration) if runtime.max_duration else None,
        allow_borrow=funding.allow_borrow,
        max_borrow=funding.max_borrow_gpus,
        sponsors=funding.sponsors,
        allow_opportunistic=funding.allow_opportunistic,
        cpu_milli=requests.cpu_milli,
        memory_bytes=requests.memory_bytes,
        tolerations=requests.tolerations,
        node_selector=tuple(sorted(requests.node_selector.items())),
        requirements=NodeRequirements(
            requests.cpu_milli, requests.memory_bytes, requests.others, requests.node_affinity
        ),
    )


def desired_width(spec: RunSpec) -> int:
    """The desired width: as declared, else the maximum rounded down to whole steps."""
    flexible = spec.malleable
    if flexible is None:
        return spec.resources.total_gpus if spec.resources else 0
    if flexible.desired_total_gpus is not None:
        return flexible.desired_total_gpus
    steps = (flexible.max_total_gpus - flexible.min_total_gpus) // flexible.step_gpus
    return flexible.min_total_gpus + steps * flexible.step_gpus
