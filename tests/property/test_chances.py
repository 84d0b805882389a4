"""Who is passed over would have been refused: asking everybody decides nothing else."""

from collections.abc import Callable, Iterator
from unittest.mock import patch

import msgspec
from hypothesis import given

from jobtree.core.model.actions import Plan
from jobtree.core.model.promise import Order
from jobtree.core.model.reasons import Verdict
from jobtree.core.operations.trial import Trial
from jobtree.core.planning import admission, elastic_width
from jobtree.core.planning import planning_pass as planning
from jobtree.core.planning.admission import Help, Start, consider, start_at
from jobtree.core.planning.admission_prefilter import Chances
from jobtree.core.planning.elastic_width import Stalled, Stuck, grow_runs
from jobtree.core.planning.planning_pass import at_rest
from jobtree.core.runs.run_state import RunState
from jobtree.core.world import world as worlds
from jobtree.core.world.inactive_queue import OF_PLACE, Like, told_of_place
from jobtree.core.world.run_queue import Line
from jobtree.core.world.world import World
from tests.property.drive import Drive
from tests.property.examples import examples
from tests.property.scenes import Scene, scenes


class Asking(Chances):
    """Passes nobody over, but remembers whom it would have."""

    passed: RunState | None = None

    def none(self, state: RunState) -> bool:
        Asking.passed = state if super().none(state) else None
        return False


def considered(trial: Trial, state: RunState, help_: Help) -> Verdict | None:
    mark, passed = trial.mark(), Asking.passed is state
    verdict = consider(trial, state, help_)
    if passed:
        assert trial.mark() == mark, f"{state.key} could start, or be paid for"
        assert state.phase == "Running" or (verdict is not None and verdict.phase == "Reserved")
    return verdict


@examples(150)
@given(scenes())
def test_nobody_is_passed_over_who_could_start(scene: Scene) -> None:
    with patch.object(planning, "Chances", Asking), patch.object(planning, "consider", considered):
        Drive(scene).play()


class Sleepless(Line):
    """Lets everybody be asked, but remembers who would have slept."""

    asleep: set[Order] = set()  # noqa: RUF012  one drive at a time

    def to_ask(self, most: Callable[[Like], int]) -> list[Order]:
        asked = super().to_ask(most)
        everybody = [order for order in self.queue if order not in self._came]
        Sleepless.asleep = set(everybody) - set(asked)
        assert set(asked) <= set(everybody)
        return everybody


def roused(trial: Trial, state: RunState, help_: Help) -> Verdict | None:
    slept, mark, of_place = state.order in Sleepless.asleep, trial.mark(), told_of_place(state)
    verdict = consider(trial, state, help_)
    if slept:
        assert trial.mark() == mark, f"{state.key} slept and could start"
        assert verdict is None or all(why.reason in OF_PLACE for why in verdict.whys) == of_place
    return verdict


@examples(150)
@given(scenes())
def test_nobody_sleeps_who_could_start_or_would_be_told_something_else(scene: Scene) -> None:
    asking = patch.object(Chances, "none", return_value=False)
    with asking, patch.object(worlds, "Line", Sleepless), patch.object(planning, "consider", roused):
        Drive(scene).play()


class Unstuck(Stuck):
    """Thinks nobody stuck."""

    def turns(self) -> Iterator[RunState]:
        runs = self._trial.world.runs
        return iter(sorted((runs[key] for key in self._flavor.eager), key=lambda state: state.order))


def grown(trial: Trial) -> tuple[Stalled, tuple[str, ...]]:
    """Grow as always, after asking everybody."""
    mark = trial.mark()
    with patch.object(elastic_width, "Stuck", Unstuck):
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


def tried(trial: Trial, state: RunState, width: int, size: int, help_: Help) -> bool:
    """Start as always, after trying everything that was thought to be in vain."""
    mark = trial.mark()
    with patch.object(Start, "_makes_place", return_value=True):
        possible = start_at(trial, state, width, size)
    trial.rollback(mark)
    started = start_at(trial, state, width, size, help_)
    assert started == possible, f"{state.key} could start"
    return started


@examples(100)
@given(scenes())
def test_nothing_is_thought_in_vain_that_would_make_place(scene: Scene) -> None:
    with patch.object(admission, "start_at", tried):
        Drive(scene).play()


def awake(world: World) -> bool:
    """Never lets a pass be left out, but looks whether one that could have been decides nothing."""
    if at_rest(world):
        decided = msgspec.structs.replace(take_a_pass(world), settled=(), served=())
        assert decided == Plan(), f"{decided} was left out"
    return False


def take_a_pass(world: World) -> Plan:
    trial = Trial(world)
    try:
        return planning.Pass(trial).plan()
    finally:
        trial.rollback()


@examples(100)
@given(scenes())
def test_no_pass_is_left_out_that_would_decide_anything(scene: Scene) -> None:
    with patch.object(planning, "at_rest", awake):
        Drive(scene).play()
