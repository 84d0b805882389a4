"""What is told of decisions as Events on Runs."""

from collections.abc import Iterable, Iterator

from jobtree.core.actions import Action
from jobtree.core.world import World
from jobtree.manager.intake import Intake
from jobtree.manager.steps import Note
from jobtree.voice.events import events_of, joined

WARNINGS = frozenset(
    {"RandomPreempt", "Reclaimed", "Demoted", "Failed", "NodeFailed", "AtRisk", "CapacityLost"}
)


def notes_of(world: World, intake: Intake, actions: Iterable[Action]) -> Iterator[Note]:
    """The Events of a plan that is about to be carried out."""
    for action in joined(actions):
        state = world.runs.get(action.run)
        if state is None:
            continue
        run = intake.runs.get(state.uid, state.run)
        for event in events_of(action):
            yield Note(run, event.name, event.message, event.at, event.name in WARNINGS)
