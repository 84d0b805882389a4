"""The shape of a gang: everything about a Run's spec that cover, pack and the queue read, as integers."""

from functools import lru_cache
from math import gcd

import msgspec

from jobtree.api.kinds.run import RunSpec
from jobtree.api.kubernetes.pod import Toleration, template_requests
from jobtree.api.schema.quantities import parse_duration


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
    rendezvous: bool  # running ranks stay as they are when others come and go
    max_duration: int | None
    allow_borrow: bool
    max_borrow: int | None
    sponsors: tuple[str, ...]
    allow_opportunistic: bool
    cpu_milli: int
    memory_bytes: int
    tolerations: tuple[Toleration, ...]
    node_selector: tuple[tuple[str, str], ...]

    @property
    def malleable(self) -> bool:
        return self.step > 0

    @property
    def may_grow(self) -> bool:
        """Whether a resize does not cost it all its work (E1)."""
        return self.malleable and (self.rendezvous or self.checkpoint is not None)

    def widths(self) -> range:
        """The widths it may start at, widest first (P7)."""
        if not self.step:
            return range(self.total, self.total - 1, -1)
        return range(min(self.total, self.desired), self.min - 1, -self.step)

    def groups(self, width: int) -> list[int]:
        """GPUs of each group at that width; the last may be smaller (P4)."""
        if not self.group:
            return [width]
        full, rest = divmod(width, self.group)
        return [self.group] * full + ([rest] if rest else [])

    def pod_size(self, biggest_node: int) -> int:
        """GPUs of one pod on a fleet whose biggest node of the flavor has that many (P2)."""
        if self.gpus_per_pod:
            return self.gpus_per_pod
        common = gcd(self.group or self.total, self.total)
        if self.step:
            common = gcd(common, self.min, self.step)
        return largest_divisor(common, max(1, biggest_node))


@lru_cache(maxsize=1_024)
def largest_divisor(number: int, at_most: int) -> int:
    return next(size for size in range(min(number, at_most), 0, -1) if number % size == 0)


def gang_shape(spec: RunSpec) -> GangShape | None:
    """The gang that a Run's spec asks for; None where it asks for no GPUs of its own."""
    resources, flexible, funding = spec.resources, spec.malleable, spec.funding
    if resources is None or not resources.total_gpus:
        return None
    total = resources.total_gpus
    asks = template_requests(spec.template or {})
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
        cpu_milli=asks.cpu_milli,
        memory_bytes=asks.memory_bytes,
        tolerations=asks.tolerations,
        node_selector=tuple(sorted(asks.node_selector.items())),
    )


def desired_width(spec: RunSpec) -> int:
    """Where a malleable Run wants to be: as declared, else the widest whole number of steps within max."""
    flexible = spec.malleable
    if flexible is None:
        return spec.resources.total_gpus if spec.resources else 0
    if flexible.desired_total_gpus is not None:
        return flexible.desired_total_gpus
    steps = (flexible.max_total_gpus - flexible.min_total_gpus) // flexible.step_gpus
    return flexible.min_total_gpus + steps * flexible.step_gpus
