"""What is told of decisions as Events on Runs."""

from collections.abc import Iterable, Iterator

from jobtree.core.model.actions import Action
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.run_transitions import PROMISING
from jobtree.core.world.world import World
from jobtree.manager.decisions.write_set import Note
from jobtree.manager.planner.cluster_intake import Intake
from jobtree.messages.reservation_outcomes import ENDS
from jobtree.messages.run_events import events_of, joined

WARNINGS = frozenset(
    {"RandomPreempt", "Reclaimed", "Demoted", "Failed", "NodeFailed", "AtRisk", "CapacityLost"}
)


def notes_of(world: World, intake: Intake, actions: Iterable[Action]) -> Iterator[Note]:
    """The Events of a plan that is about to be carried out.

    Of a promise whose Reservation is not made yet nobody hears: that is told when it is.
    """
    for action in joined(action for action in actions if not is_unheard(intake, action)):
        state = world.runs.get(action.run)
        if state is not None:
            yield from notes_about(intake, state, action)


def is_unheard(intake: Intake, action: Action) -> bool:
    promise = action.promise if action.kind in (*PROMISING, *ENDS) else None
    return promise is not None and (action.run[0], promise.name) not in intake.reservations


def notes_about(intake: Intake, state: RunState, action: Action) -> Iterator[Note]:
    run = intake.runs.get(state.uid, state.run)
    for event in events_of(action):
        yield Note(run, event.name, event.message, event.at, event.name in WARNINGS)
