"""A promise: the start that a Reservation holds, counted in GPUs per domain and per envelope (R1–R3)."""

from typing import Literal

import msgspec

from jobtree.core.model.gpu_lease import EnvelopeKey, RunKey

Disruption = Literal[0, 1, 2]  # what the start may take: nothing; spares and steps; also the lottery

NO_DISRUPTION: Disruption = 0
STRUCTURAL: Disruption = 1
LOTTERY: Disruption = 2

CreationOrder = tuple[int, str, str]  # creation time, namespace, name
Precedence = tuple[
    int, int, CreationOrder
]  # the instant it was made, its turn then, the Run's place in the queue


class PromiseSlip(msgspec.Struct, frozen=True):
    """A promise moved later (or lost its time), and why."""

    before: int | None
    after: int | None
    reason: str


MAX_SLIPS = 256  # that a Reservation may list


def add_slip(slips: tuple[PromiseSlip, ...], slip: PromiseSlip) -> tuple[PromiseSlip, ...]:
    """One slip more; of very many, the first and the latest are kept."""
    return (*slips, slip) if len(slips) < MAX_SLIPS else (slips[0], *slips[2:], slip)


class Promise(msgspec.Struct, frozen=True):
    run_key: RunKey
    flavor: str
    number: int  # of the Run's Reservations, never reused
    made_at: int
    creation_order: CreationOrder
    commitment: str
    at: int | None  # None: nothing known will make it possible (R9)
    disruption: Disruption
    width: int
    pod_size: int
    domain_gpus: tuple[tuple[str, int], ...]  # GPUs per domain
    funding: tuple[tuple[EnvelopeKey, int], ...]  # GPUs per envelope
    end: int | None  # when the Run is certain to have ended, if it starts then
    immune_until: int  # it cannot be drawn before that
    window_aligned: bool = False
    beacon: tuple[str, int] | None = None  # name and round of the beacon whose value is mixed in
    slips: tuple[PromiseSlip, ...] = ()
    named_after: str = (
        ""  # the Run that the Reservation is named after: the tree, where stages start together
    )
    sequence: int = 0  # made at the same instant as others, but behind them whatever the Run's order

    @property
    def precedence(self) -> Precedence:
        """Promises hold against everyone but those made before (R5)."""
        return (self.made_at, self.sequence, self.creation_order)

    def begins_before(self, end: int) -> bool:
        return self.at is not None and self.at < end

    @property
    def name(self) -> str:
        return f"{self.named_after or self.run_key[1]}-{self.number}"

    def has_failed_by(self, now: int) -> bool:
        """Whether it was due, could not be kept and has no date since: counting alone did not do."""
        last = self.slips[-1] if self.slips else None
        return last is not None and last.after is None and last.before is not None and last.before <= now
