"""Who is passed over would have been refused: asking everybody decides nothing else."""

from collections.abc import Callable, Iterator
from unittest.mock import patch

import msgspec
from hypothesis import given

from jobtree.core.model.actions import Plan
from jobtree.core.model.promise import CreationOrder
from jobtree.core.model.reasons import Verdict
from jobtree.core.operations.trial import Trial
from jobtree.core.planning import admission, elastic_width, planning_pass as planning
from jobtree.core.planning.admission import AdmissionHints, StartAttempt, admit, start_at_width
from jobtree.core.planning.admission_prefilter import AdmissionPrefilter
from jobtree.core.planning.elastic_width import Stalled, StalledGrowth, grow_runs
from jobtree.core.planning.planning_pass import is_at_rest
from jobtree.core.runs.run_state import RunState
from jobtree.core.world import world as worlds
from jobtree.core.world.inactive_queue import PLACEMENT_REASONS, WaitSignature, lacks_room_only
from jobtree.core.world.run_queue import RunQueue
from jobtree.core.world.world import World
from tests.property.drive import Drive
from tests.property.examples import examples
from tests.property.scenes import Scene, scenes


class Asking(AdmissionPrefilter):
    """Passes nobody over, but remembers whom it would have."""

    passed: RunState | None = None

    def is_certainly_refused(self, state: RunState) -> bool:
        Asking.passed = state if super().is_certainly_refused(state) else None
        return False


def considered(trial: Trial, state: RunState, help_: AdmissionHints) -> Verdict | None:
    mark, passed = trial.checkpoint(), Asking.passed is state
    verdict = admit(trial, state, help_)
    if passed:
        assert trial.checkpoint() == mark, f"{state.key} could start, or be paid for"
        assert state.phase == "Running" or (verdict is not None and verdict.phase == "Reserved")
    return verdict


@examples(150)
@given(scenes())
def test_nobody_is_passed_over_who_could_start(scene: Scene) -> None:
    with patch.object(planning, "AdmissionPrefilter", Asking), patch.object(planning, "admit", considered):
        Drive(scene).play()


class Sleepless(RunQueue):
    """Lets everybody be asked, but remembers who would have slept."""

    asleep: set[CreationOrder] = set()  # noqa: RUF012  one drive at a time

    def active_runs(self, most: Callable[[WaitSignature], int]) -> list[CreationOrder]:
        asked = super().active_runs(most)
        everybody = [order for order in self.queue if order not in self._entered]
        Sleepless.asleep = set(everybody) - set(asked)
        assert set(asked) <= set(everybody)
        return everybody


def roused(trial: Trial, state: RunState, help_: AdmissionHints) -> Verdict | None:
    slept, mark, of_place = (
        state.creation_order in Sleepless.asleep,
        trial.checkpoint(),
        lacks_room_only(state),
    )
    verdict = admit(trial, state, help_)
    if slept:
        assert trial.checkpoint() == mark, f"{state.key} slept and could start"
        assert verdict is None or all(why.reason in PLACEMENT_REASONS for why in verdict.causes) == of_place
    return verdict


@examples(150)
@given(scenes())
def test_nobody_sleeps_who_could_start_or_would_be_told_something_else(scene: Scene) -> None:
    asking = patch.object(AdmissionPrefilter, "is_certainly_refused", return_value=False)
    with asking, patch.object(worlds, "RunQueue", Sleepless), patch.object(planning, "admit", roused):
        Drive(scene).play()


class Unstuck(StalledGrowth):
    """Thinks nobody stuck."""

    def candidates(self) -> Iterator[RunState]:
        runs = self._trial.world.runs
        return iter(
            sorted(
                (runs[key] for key in self._flavor.growth_candidates), key=lambda state: state.creation_order
            )
        )


def grown(trial: Trial) -> tuple[Stalled, tuple[str, ...]]:
    """Grow as always, after asking everybody."""
    mark = trial.checkpoint()
    with patch.object(elastic_width, "StalledGrowth", Unstuck):
        grow_runs(trial)
    possible = trial.actions()
    trial.rollback(mark)
    found = grow_runs(trial)
    assert trial.actions() == possible
    return found


@examples(150)
@given(scenes())
def test_nobody_is_thought_stuck_who_could_grow(scene: Scene) -> None:
    with patch.object(planning, "grow_runs", grown):
        Drive(scene).play()


def tried(trial: Trial, state: RunState, width: int, size: int, help_: AdmissionHints) -> bool:
    """Start as always, after trying everything that was thought to be in vain."""
    mark = trial.checkpoint()
    with patch.object(StartAttempt, "_may_make_room", return_value=True):
        possible = start_at_width(trial, state, width, size)
    trial.rollback(mark)
    started = start_at_width(trial, state, width, size, help_)
    assert started == possible, f"{state.key} could start"
    return started


@examples(100)
@given(scenes())
def test_nothing_is_thought_in_vain_that_would_make_place(scene: Scene) -> None:
    with patch.object(admission, "start_at_width", tried):
        Drive(scene).play()


def awake(world: World) -> bool:
    """Never lets a pass be left out, but looks whether one that could have been decides nothing."""
    if is_at_rest(world):
        decided = msgspec.structs.replace(take_a_pass(world), considered=(), queue_exhausted=())
        assert decided == Plan(), f"{decided} was left out"
    return False


def take_a_pass(world: World) -> Plan:
    trial = Trial(world)
    try:
        return planning.PlanningPass(trial).plan()
    finally:
        trial.rollback()


@examples(100)
@given(scenes())
def test_no_pass_is_left_out_that_would_decide_anything(scene: Scene) -> None:
    with patch.object(planning, "is_at_rest", awake):
        Drive(scene).play()
