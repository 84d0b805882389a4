"""One start of a Run at one width: on free slots, on those of opportunistic work, or with recalled budget.

A start at once stops no Run that only this start demotes: such a Run has its notice first (C11).
"""

from collections.abc import Callable, Sequence

from jobtree.core.funding.conditional_promise import is_conditional
from jobtree.core.funding.cover import funding_refusals
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.reasons import Cause, Reason
from jobtree.core.operations.gang_layout import GangLayout
from jobtree.core.operations.payer_changes import keeps_other_promises
from jobtree.core.operations.promise_changes import exhausts_own_promise, keep_date
from jobtree.core.operations.reclaim import (
    ReclaimAction,
    is_funded_without_provisional,
    recalls_for_start,
    reclaim_actions,
    reclaim_least,
    reclaim_until,
    runs_with_notice,
)
from jobtree.core.operations.trial import Trial
from jobtree.core.runs.run_state import RunState


class StartAttempt:
    """A start at one width, and what it may reclaim or recall.

    With ``after_notice``, it is the start when all Runs have had notice that have to stop for it.
    """

    def __init__(
        self, trial: Trial, run: RunState, width: int, pod_size: int, *, after_notice: bool = False
    ) -> None:
        self._trial, self._world, self._now = trial, trial.world, trial.world.now
        self._run, self._width, self._pod_size = run, width, pod_size
        self._flavor = trial.world.fleet.flavor(run.flavor)
        self._after_notice = after_notice
        self._safe: frozenset[RunKey] = frozenset()  # Runs that this start must not stop

    def attempt(self) -> bool:
        """Starts on free slots, charged to free budget, unless that would cost the Run a firm date."""
        trial, run, checkpoint = self._trial, self._run, self._trial.checkpoint()
        self._begin()
        placed = GangLayout(trial, run, self._pod_size, self._now, "Start").place(self._width)
        if placed and keep_date(trial, run):
            return True
        if not placed or self._costs_firm_date():
            trial.rollback(checkpoint)
            return False
        promise = run.promise
        if promise is not None:
            cause = Cause(Reason.SUPERSEDED, promise.name)
            trial.begin_action("Supersede", run, self._now, cause, promise=promise)
            if promise.at is not None and not keeps_other_promises(self._world, run):
                trial.rollback(checkpoint)  # elsewhere than promised, it would take from others (R7)
                return False
        return True

    def _costs_firm_date(self) -> bool:
        """Whether the family, which may recall its budget, pays for a Run with a firm date (R7).

        With a checkpoint it keeps its date and starts provisionally, if it can. Without one it waits for a
        date that is at most ``minRuntime`` away.
        """
        run, promise = self._run, self._run.promise
        if (
            promise is None
            or promise.at is None
            or not any(lease.class_ == "Shared" for lease in run.leases.values())
            or is_conditional(self._world, promise)
        ):
            return False
        return run.checkpoint_ms is not None or promise.at - self._now <= self._world.policy.min_runtime_ms

    def _begin(self) -> None:
        cause = Cause(Reason.ADMITTED, self._run.owner, self._width, self._width)
        self._trial.begin_action("Start", self._run, self._now, cause, pod_size=self._pod_size)

    def _funded(self) -> bool:
        return not funding_refusals(self._world, self._run, self._width, self._pod_size, self._now)

    def reclaim(self) -> bool:
        """Starts on slots of opportunistic work, ending as little of it as possible."""
        return self._may_reclaim() and reclaim_least(self._trial, *self._terms())

    def _could_reclaim(self) -> bool:
        return self._may_reclaim() and bool(reclaim_until(self._trial, *self._terms()))

    def _may_reclaim(self) -> bool:
        return is_funded_without_provisional(self._trial, [self._run], self._funded) and self._may_make_room(
            []
        )

    def _terms(self) -> tuple[list[ReclaimAction], Callable[[], bool], Callable[[], bool]]:
        def worth() -> bool:
            return self._flavor.free >= self._width and self._funded()

        return self._reclaim_actions(), worth, self.attempt

    def _reclaim_actions(self) -> list[ReclaimAction]:
        return reclaim_actions(self._trial, self._run, self._now, self._safe, after_notice=self._after_notice)

    def recall(self) -> bool:
        """Starts with recalled family charges (C11, R14), if the Run lacks budget and not only room."""
        if not self._world.considers_recalls(self._run):
            return False
        if not self._after_notice:
            self._safe = runs_with_notice(self._trial, [self._run], self._now)
        if not funding_refusals(
            self._world, self._run, self._width, self._pod_size, self._now, anywhere=True
        ):
            return False  # payers that pay only on some nodes do not count
        actions = recalls_for_start(
            self._trial,
            self._run,
            self._now,
            self._width,
            self._pod_size,
            after_notice=self._after_notice,
        )
        return self._may_make_room(actions) and reclaim_least(
            self._trial,
            actions,
            self._funded,
            lambda: self.attempt() or self.reclaim(),
            probe=lambda: self.attempt() or self._could_reclaim(),
        )

    def _may_make_room(self, actions: Sequence[ReclaimAction]) -> bool:
        """Whether the Run fits after all these actions and the end of all opportunistic work.

        If it does not fit then, fewer actions are not tried.
        """
        trial, checkpoint, fits = self._trial, self._trial.checkpoint(), False
        for action in actions:
            action()
        for action in self._reclaim_actions():
            action()
        if trial.checkpoint() > checkpoint:
            self._begin()
            layout = GangLayout(trial, self._run, self._pod_size, self._now, "Start")
            fits = may_fit(layout, self._width) and layout.place(self._width)
        trial.rollback(checkpoint)
        return fits


def may_fit(layout: GangLayout, width: int) -> bool:
    """Whether pods for that width might fit beside all promises: an upper bound."""
    shape, pod_size = layout.shape, layout.pod_size
    chunk = max(pod_size, shape.group) if shape.spread else width
    missing = width // chunk * chunk
    for domain in list(layout.flavor.in_pack_order(min(chunk, missing))):
        missing -= max(0, layout.unreserved_gpus(domain)) // chunk * chunk
        if missing <= 0:
            return True
    return missing <= 0


def start_provisionally(trial: Trial, run: RunState, width: int, pod_size: int) -> bool:
    """Starts on promised slots or budget for as long as enough time remains (R6)."""
    now, checkpoint = trial.world.now, trial.checkpoint()
    cause = Cause(Reason.PROVISIONAL, "", width, width)
    trial.begin_action("Start", run, now, cause, pod_size=pod_size, provisional=True)
    placed = GangLayout(trial, run, pod_size, now, "Start").place(width)
    if placed and not exhausts_own_promise(trial.world, run):
        return True
    trial.rollback(checkpoint)
    return False
