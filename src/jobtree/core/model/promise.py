"""A promise: the start that a Reservation guarantees, in GPUs per domain and per envelope (R1–R3)."""

from typing import Literal

import msgspec

from jobtree.core.model.gpu_lease import EnvelopeKey, RunKey

Disruption = Literal[0, 1, 2, 3]
"""What a start may take from others: nothing, spares and steps, also a lottery, or also a recall."""

NO_DISRUPTION: Disruption = 0
STRUCTURAL: Disruption = 1
LOTTERY: Disruption = 2
RECALL: Disruption = 3

CreationOrder = tuple[int, str, str]  # creation time, namespace, name
Precedence = tuple[int, int, CreationOrder]
"""The instant at which a promise was made, its sequence number then, and the creation order of its Run."""


RecalledStart = tuple[RunKey, int]
"""A Run that stops for a recall, and the instant at which its present admission started."""


class PromiseSlip(msgspec.Struct, frozen=True):
    """A promise that moved later or lost its date, with the reason."""

    before: int | None
    after: int | None
    reason: str


MAX_SLIPS = 256  # in one Reservation


def add_slip(slips: tuple[PromiseSlip, ...], slip: PromiseSlip) -> tuple[PromiseSlip, ...]:
    """Adds a slip; beyond ``MAX_SLIPS``, the first and the latest are retained."""
    return (*slips, slip) if len(slips) < MAX_SLIPS else (slips[0], *slips[2:], slip)


class Promise(msgspec.Struct, frozen=True):
    run_key: RunKey
    flavor: str
    number: int  # of the Reservation, counted per Run and never reused
    made_at: int
    creation_order: CreationOrder
    commitment: str
    at: int | None  # None: no known event makes the start possible (R9)
    disruption: Disruption
    width: int
    pod_size: int
    domain_gpus: tuple[tuple[str, int], ...]  # GPUs per domain
    funding: tuple[tuple[EnvelopeKey, int], ...]  # GPUs per envelope
    end: int | None  # the latest end of the Run if it starts then
    immune_until: int  # the Run cannot be drawn in a lottery before
    window_aligned: bool = False
    beacon: tuple[str, int] | None = None  # name and round of the beacon whose value is mixed in
    slips: tuple[PromiseSlip, ...] = ()
    recalls: tuple[RecalledStart, ...] = ()  # Runs that stop for this start and were told (C11)
    named_after: str = ""  # name of the Run in the Reservation's name: the tree, where stages start together
    sequence: int = 0  # orders promises that are made at the same instant
    held: bool = False  # its Run runs early in its slice: there its leases count, until the promise would end
    beyond_depth: bool = False  # too many funded Runs wait before it: it has no date and holds nothing (R13)
    keeps_budget: bool = True  # without a date: until too much was left idle for it (C12)

    @property
    def precedence(self) -> Precedence:
        """The order in which promises hold: a promise yields only to those made before it (R5)."""
        return (self.made_at, self.sequence, self.creation_order)

    def begins_before(self, end: int) -> bool:
        return self.at is not None and self.at < end

    @property
    def name(self) -> str:
        return f"{self.named_after or self.run_key[1]}-{self.number}"

    def has_failed_by(self, now: int) -> bool:
        """Whether the promise was due by then, could not be kept and has had no date since."""
        last = self.slips[-1] if self.slips else None
        return last is not None and last.after is None and last.before is not None and last.before <= now
