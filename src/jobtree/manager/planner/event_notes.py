"""Builds the Events on Runs that report the actions of a plan."""

from collections.abc import Iterable, Iterator

from jobtree.core import FINAL_STATES, SETS_PROMISE, WARNINGS, Action, RunState, World
from jobtree.manager.decisions.write_set import EventNote
from jobtree.manager.planner.cluster_intake import ClusterIntake
from jobtree.messages.run_events import Event, events_of, merged_actions


def event_notes(world: World, intake: ClusterIntake, actions: Iterable[Action]) -> Iterator[EventNote]:
    """The Events of a plan that is about to be applied.

    A promise whose Reservation is not written yet has no Events now: they are written with the Reservation.
    """
    for action in merged_actions(action for action in actions if not is_unwritten(intake, action)):
        run = world.runs.get(action.run_key)
        if run is not None:
            yield from event_notes_of_action(intake, run, action)


def is_unwritten(intake: ClusterIntake, action: Action) -> bool:
    promise = action.promise if action.kind in (*SETS_PROMISE, *FINAL_STATES) else None
    return promise is not None and (action.run_key[0], promise.name) not in intake.reservations


def event_notes_of_action(intake: ClusterIntake, run: RunState, action: Action) -> Iterator[EventNote]:
    for event in events_of(action):
        yield event_note(intake, run, event)


def event_note(intake: ClusterIntake, run: RunState, event: Event) -> EventNote:
    run_object = intake.runs.get(run.uid, run.run_object)
    return EventNote(run_object, event.name, event.message, event.at, event.name in WARNINGS)
