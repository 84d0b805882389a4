"""What is told of decisions: Events on Runs, and lines for the log that name their part."""

from collections.abc import Iterable, Iterator

from jobtree.core.actions import Action
from jobtree.core.world import World
from jobtree.manager.intake import Intake
from jobtree.manager.steps import Note
from jobtree.sim.events import events_of, joined

WARNINGS = frozenset(
    {"RandomPreempt", "Reclaimed", "Demoted", "Failed", "NodeFailed", "AtRisk", "CapacityLost"}
)
PARTS = {"Reserve": "forecast", "Move": "forecast", "Withdraw": "forecast", "Activate": "resolver"}


def notes_of(world: World, intake: Intake, actions: Iterable[Action]) -> Iterator[Note]:
    """The Events of a plan that is about to be carried out."""
    for action in joined(actions):
        state = world.runs.get(action.run)
        if state is None:
            continue
        run = intake.runs.get(state.uid, state.run)
        for event in events_of(action):
            yield Note(run, event.name, event.message, event.at, event.name in WARNINGS)


def lines_of(actions: Iterable[Action]) -> Iterator[tuple[str, dict[str, object]]]:
    for action in joined(actions):
        line: dict[str, object] = {
            "action": action.kind,
            "run": "/".join(action.run),
            "cause": str(action.cause.reason),
            "opens": sum(lease.gpus for lease in action.opens),
            "closes": len(action.closes),
        }
        if action.promise is not None:
            line["reservation"] = action.promise.name
        if action.record is not None and action.record.decision.losers:
            line["event"] = "RandomPreempt"
            line["losers"] = ",".join(action.record.decision.losers)
        if action.record is not None:
            line["seed"] = action.record.seed
        yield PARTS.get(action.kind, "binder"), line
