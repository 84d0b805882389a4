"""Computes how long a Run is immune, when it certainly ends, and how much notice it needs (R3, R4, R6)."""

from typing import NamedTuple

from jobtree.api.kinds.policy import Policy
from jobtree.core.accounts.envelope_accounts import FOREVER
from jobtree.core.model.gpu_lease import GpuLease
from jobtree.core.runs.run_state import PROTECTION_MS, RunState

MAX_DOUBLINGS = 4  # lotteries lost that still lengthen the immunity, and stops that lengthen other times


class DrawNotice(NamedTuple):
    """The time in which a Run can be drawn, and how long before a draw its owner must know."""

    immune_until: int
    certain_end: int
    notice_ms: int


def immunity_ms(policy: Policy, lotteries_lost: int) -> int:
    """Returns how long a Run is immune after its start: ``minRuntime``, doubled by each lost lottery (R4)."""
    return policy.min_runtime_ms << min(lotteries_lost, MAX_DOUBLINGS)


def immune_until(policy: Policy, run: RunState, now: int) -> int:
    """Returns the instant until which a Run is immune; a waiting Run counts as starting now.

    An early start counts from its promised date, so that it does not cost the Run that date (R7). A lottery
    that the Run did not lose gives it ``peace``.
    """
    start = now if run.since is None else max(run.since, run.promised_start or 0)
    immune = start + immunity_ms(policy, run.lotteries_lost)
    return immune if run.not_drawn_at is None else max(immune, run.not_drawn_at + policy.peace_ms)


def kept_for_ms(policy: Policy, checkpoint_ms: int | None) -> int:
    """Returns how long after its date a Run must not be stopped, so that its promise is kept (R5)."""
    return max(PROTECTION_MS, min(checkpoint_ms or 0, policy.min_runtime_ms))


def draw_notice_ms(policy: Policy, checkpoint_ms: int | None) -> int:
    """Returns how long before a draw the owner must know: the checkpoint, within the policy's bounds (R3)."""
    if checkpoint_ms is None:
        return policy.min_notice_ms
    return max(policy.min_notice_ms, min(checkpoint_ms, policy.max_notice_ms))


def notice_ends_at(policy: Policy, run: RunState, lease: GpuLease) -> int:
    """Returns from when a draw for the slots of a lease is known long enough to the owner of its Run (R12).

    A lease that a start or a growth opened may have brought the Run into the slice of a promise.
    """
    is_new = lease.reason in ("Start", "Grow")
    return lease.start + draw_notice_ms(policy, run.checkpoint_ms) if is_new else lease.start


def provisional_notice_ms(policy: Policy, checkpoint_ms: int | None) -> int:
    """Returns the notice of the end of provisional work: ``checkpoint``, at least ``minNotice``."""
    return max(checkpoint_ms or 0, policy.min_notice_ms)


def min_provisional_ms(policy: Policy, run: RunState) -> int:
    """Returns how long provisional work must be able to run (R6).

    That is its notice and the cost of two restarts, doubled each time that Jobtree stopped the Run before.
    """
    once = provisional_notice_ms(policy, run.checkpoint_ms) + 2 * policy.restart_cost_ms
    return once << min(run.times_stopped, MAX_DOUBLINGS)


def certain_end(known_end: int | None, last_closing: int | None) -> int:
    """Returns when a Run has certainly ended: at its known end, or when the last window of payers closes."""
    return min(
        FOREVER if known_end is None else known_end,
        FOREVER if last_closing is None else last_closing,
    )
