"""Attempts: one life of all ranks of a Run (E3, F5).

A failed pod begins the next attempt after a pause that doubles each time, and counts against
``maxRestarts``. A swap, a recovery or a resize begins one at once, unless the framework finds its ranks
again by itself (``onResize: Rendezvous``). What happens at one instant is one attempt.
"""

from jobtree.api.quantities import MINUTE, SECOND
from jobtree.core.actions import Action
from jobtree.core.runs import RunState

FIRST_PAUSE = 10 * SECOND
LONGEST_PAUSE = 10 * MINUTE
RESIZES = frozenset({"Start", "Grow", "Shrink", "Recover", "Restart"})


def backoff(restarts: int) -> int:
    """How long the pods wait before they start again, after so many failures."""
    return min(FIRST_PAUSE << min(restarts - 1, 16), LONGEST_PAUSE) if restarts else 0


def begin_attempt(state: RunState, action: Action) -> None:
    """Count the attempt that an action begins, and say when its pods may start."""
    if action.kind not in RESIZES:
        return
    keeps = state.shape is not None and state.shape.rendezvous
    if action.kind in ("Start", "Restart") or (not keeps and action.at > state.changed_at):
        state.attempt += 1
        state.restarts += action.counts
        state.resume_at = action.at + (backoff(state.restarts) if action.counts else 0)
    state.changed_at = action.at
