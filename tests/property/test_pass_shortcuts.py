"""A pass skips only what would have changed nothing: passes without shortcuts decide the same.

Each test plays random histories in which one shortcut is replaced by the full computation, and compares them.
"""

from collections.abc import Iterator
from unittest.mock import patch

import msgspec
from hypothesis import given

from jobtree.core.model.actions import Plan
from jobtree.core.model.promise import CreationOrder
from jobtree.core.model.reasons import Verdict
from jobtree.core.operations.trial import Trial
from jobtree.core.planning import admission, elastic_width, planning_pass
from jobtree.core.planning.admission import AdmissionHints, admit, start_at_width
from jobtree.core.planning.admission_prefilter import AdmissionPrefilter
from jobtree.core.planning.elastic_width import Stalled, StalledGrowth, grow_runs
from jobtree.core.planning.planning_pass import is_at_rest
from jobtree.core.planning.start_attempt import StartAttempt
from jobtree.core.runs.run_state import RunState
from jobtree.core.world import world as world_module
from jobtree.core.world.inactive_queue import PLACEMENT_REASONS, lacks_room_only
from jobtree.core.world.run_queue import MaxGpusFor, RunQueue
from jobtree.core.world.world import World
from tests.property.examples import examples
from tests.property.history_player import HistoryPlayer
from tests.property.random_histories import RandomHistory, random_histories


class RecordingPrefilter(AdmissionPrefilter):
    """Skips no Run, and records the last one that it would have skipped."""

    would_skip: RunState | None = None

    def is_certainly_refused(self, run: RunState) -> bool:
        RecordingPrefilter.would_skip = run if super().is_certainly_refused(run) else None
        return False


def admit_checking_prefilter(trial: Trial, run: RunState, hints: AdmissionHints) -> Verdict | None:
    checkpoint, would_skip = trial.checkpoint(), RecordingPrefilter.would_skip is run
    verdict = admit(trial, run, hints)
    if would_skip:
        assert trial.checkpoint() == checkpoint, f"{run.key} could start, or be paid for"
        assert run.phase == "Running" or (verdict is not None and verdict.phase == "Reserved")
    return verdict


@examples(150)
@given(random_histories())
def test_prefilter_skips_no_run_that_could_start(history: RandomHistory) -> None:
    prefilter = patch.object(planning_pass, "AdmissionPrefilter", RecordingPrefilter)
    with prefilter, patch.object(planning_pass, "admit", admit_checking_prefilter):
        HistoryPlayer(history).play()


class RecordingQueue(RunQueue):
    """Lists all waiting Runs, and records those that would have been inactive."""

    inactive_orders: set[CreationOrder] = set()  # noqa: RUF012  one cluster at a time

    def active_runs(self, max_gpus: MaxGpusFor) -> list[CreationOrder]:
        active = super().active_runs(max_gpus)
        everything = [order for order in self.queue if order not in self._entered]
        RecordingQueue.inactive_orders = set(everything) - set(active)
        assert set(active) <= set(everything)
        return everything


def admit_checking_inactivity(trial: Trial, run: RunState, hints: AdmissionHints) -> Verdict | None:
    inactive = run.creation_order in RecordingQueue.inactive_orders
    checkpoint, lacked_room_only = trial.checkpoint(), lacks_room_only(run)
    verdict = admit(trial, run, hints)
    if inactive:
        assert trial.checkpoint() == checkpoint, f"{run.key} was inactive and could start"
        assert verdict is None or lacked_room_only == all(
            cause.reason in PLACEMENT_REASONS for cause in verdict.causes
        )
    return verdict


@examples(150)
@given(random_histories())
def test_inactive_runs_cannot_start_and_keep_their_verdict(history: RandomHistory) -> None:
    no_prefilter = patch.object(AdmissionPrefilter, "is_certainly_refused", return_value=False)
    queue = patch.object(world_module, "RunQueue", RecordingQueue)
    with no_prefilter, queue, patch.object(planning_pass, "admit", admit_checking_inactivity):
        HistoryPlayer(history).play()


class AllGrowthCandidates(StalledGrowth):
    """Considers every growth candidate, in creation order."""

    def candidates(self) -> Iterator[RunState]:
        runs = self._trial.world.runs
        candidates = (runs[key] for key in self._flavor.growth_candidates)
        return iter(sorted(candidates, key=lambda run: run.creation_order))


def grow_runs_checked(trial: Trial) -> tuple[Stalled, tuple[str, ...]]:
    """Grows Runs as usual, and compares with considering all candidates."""
    checkpoint = trial.checkpoint()
    with patch.object(elastic_width, "StalledGrowth", AllGrowthCandidates):
        grow_runs(trial)
    possible = trial.actions()
    trial.rollback(checkpoint)
    result = grow_runs(trial)
    assert trial.actions() == possible
    return result


@examples(150)
@given(random_histories())
def test_stalled_runs_cannot_grow(history: RandomHistory) -> None:
    with patch.object(planning_pass, "grow_runs", grow_runs_checked):
        HistoryPlayer(history).play()


def start_at_width_checked(
    trial: Trial, run: RunState, width: int, pod_size: int, hints: AdmissionHints
) -> bool:
    """Starts a Run as usual, and compares with trying every way to make room."""
    checkpoint = trial.checkpoint()
    with patch.object(StartAttempt, "_may_make_room", return_value=True):
        possible = start_at_width(trial, run, width, pod_size)
    trial.rollback(checkpoint)
    started = start_at_width(trial, run, width, pod_size, hints)
    assert started == possible, f"{run.key} could start"
    return started


@examples(100)
@given(random_histories())
def test_start_attempt_skips_nothing_that_would_make_room(history: RandomHistory) -> None:
    with patch.object(admission, "start_at_width", start_at_width_checked):
        HistoryPlayer(history).play()


def never_at_rest(world: World) -> bool:
    """Lets no pass be skipped, and checks that a pass that could have been skipped decides nothing."""
    if is_at_rest(world):
        decided = msgspec.structs.replace(plan_one_pass(world), considered=(), queue_exhausted=())
        assert decided == Plan(), f"{decided} would have been skipped"
    return False


def plan_one_pass(world: World) -> Plan:
    trial = Trial(world)
    try:
        return planning_pass.PlanningPass(trial).plan()
    finally:
        trial.rollback()


@examples(100)
@given(random_histories())
def test_skipped_passes_would_decide_nothing(history: RandomHistory) -> None:
    with patch.object(planning_pass, "is_at_rest", never_at_rest):
        HistoryPlayer(history).play()
