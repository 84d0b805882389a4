"""Runs, Budgets, Reservations and Leases that could not be written, and when each is tried again (H1).

An object that the API server refuses holds up itself alone. Its pauses double from five seconds to ten
minutes; an edit or a deletion ends the pause. If a decision about a Run was refused, planning leaves the Run
out during the pause: it gets nothing, and what it holds stays with it. If only a report was refused, planning
goes on.
"""

from collections.abc import Callable, Iterable

import msgspec

from jobtree.api.kinds.run import Run
from jobtree.core import Cause, Reason
from jobtree.kube.http.api_errors import CONFLICT, StatusError
from jobtree.kube.watch.object_store import Change
from jobtree.manager.cluster_view import Changes
from jobtree.manager.decisions.write_set import EventNote, UnreservedRun

FIRST_PAUSE_MS = 5_000
MOST_PAUSE_MS = 600_000
MAX_WHY = 400


class Setback(msgspec.Struct):
    """A refused write: how often, and until when nothing is tried; ``left_out``: of planning, too."""

    run: Run | None
    tries: int = 0
    until: int | None = None
    why: str = ""
    left_out: bool = False


class DueRetries(msgspec.Struct, frozen=True):
    """What is tried again: Runs that were left out, Runs whose status is reported, names of other objects."""

    left_out: tuple[Run, ...] = ()
    runs: tuple[Run, ...] = ()
    names: frozenset[str] = frozenset()


class SetAside:
    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._setbacks: dict[str, Setback] = {}  # by UID of a Run, or name of another object
        self._event_notes: list[EventNote] = []
        self.must_rebuild = False  # whether a Run was left out since the model was built

    def __len__(self) -> int:
        return sum(setback.until is not None for setback in self._setbacks.values())

    def pauses(self, key: str) -> bool:
        """Whether nothing is written to the object now."""
        setback = self._setbacks.get(key)
        return setback is not None and setback.until is not None

    def was_refused(self, key: str) -> bool:
        """Whether the last write to the object was refused, so that others need not wait for the next one."""
        return key in self._setbacks

    def leaves_out(self, uid: str) -> bool:
        """Whether planning leaves the Run out now."""
        setback = self._setbacks.get(uid)
        return setback is not None and setback.until is not None and setback.left_out

    # What was refused, and what was written

    def leave_out(self, run: Run, refused: StatusError) -> None:
        """Records that a decision about the Run was refused."""
        self._add_run(run, refused).left_out = self.must_rebuild = True

    def leave_out_unreserved(self, unreserved: UnreservedRun) -> None:
        """Records that a promise came due before its Reservation was written: the Run waits like that one."""
        setback = self._setbacks.get(unreserved.reservation)
        why = f"Reservation {unreserved.reservation} could not be written before its date"
        if setback is not None and setback.why:
            why += f": {setback.why}"
        tries = setback.tries - 1 if setback is not None else 0
        refused = StatusError(CONFLICT, "NotWritten", why)
        self._setbacks.setdefault(unreserved.run.metadata.uid, Setback(unreserved.run, tries))
        self.leave_out(unreserved.run, refused)

    def pause_report(self, run: Run, refused: StatusError) -> None:
        """Records that a status of the Run was refused that only reports."""
        self._add_run(run, refused).left_out = False

    def pause_name(self, name: str, refused: StatusError) -> None:
        """Records that a Lease, or the status of a Budget or a Reservation, was refused."""
        self._add(name, None, refused)

    def forget(self, key: str) -> None:
        """Records that the object was written."""
        self._setbacks.pop(key, None)

    def _add_run(self, run: Run, refused: StatusError) -> Setback:
        cause = Cause(Reason.NOT_WRITTEN, str(refused)[:MAX_WHY])
        note = EventNote(run, str(Reason.NOT_WRITTEN), str(cause), self._clock(), warning=True)
        self._event_notes.append(note)
        return self._add(run.metadata.uid, run, refused)

    def _add(self, key: str, run: Run | None, refused: StatusError) -> Setback:
        setback = self._setbacks.setdefault(key, Setback(run))
        pause = min(FIRST_PAUSE_MS * 2 ** min(setback.tries, 20), MOST_PAUSE_MS)
        setback.until = self._clock() + max(pause, (refused.retry_after_seconds or 0) * 1_000)
        setback.run, setback.why = run, str(refused)
        setback.tries += 1
        return setback

    def event_notes(self) -> list[EventNote]:
        """Returns the Events that tell the reasons, once."""
        event_notes, self._event_notes = self._event_notes, []
        return event_notes

    @property
    def has_event_notes(self) -> bool:
        return bool(self._event_notes)

    # What is tried again

    def next_retry_at(self) -> int | None:
        return min((setback.until for setback in self._setbacks.values() if setback.until), default=None)

    def handle_changes(self, changes: Iterable[Change[Run]]) -> None:
        """Ends the pauses of Runs that were edited or are deleted."""
        for change in changes:
            for stored in (change.before, change.after):
                setback = self._setbacks.get(stored.uid) if stored is not None else None
                if setback is None or setback.run is None or stored is None:
                    continue
                if change.after is None:
                    self.forget(stored.uid)
                elif setback.until is not None and is_edited(setback.run, change.after.value):
                    setback.until = 0

    def take_due(self) -> DueRetries:
        """Ends the pauses that are over, and returns what is tried again."""
        now = self._clock()
        left_out: list[Run] = []
        runs: list[Run] = []
        names: list[str] = []
        for key, setback in self._setbacks.items():
            if setback.until is None or setback.until > now:
                continue
            setback.until = None
            if setback.run is None:
                names.append(key)
            else:
                (left_out if setback.left_out else runs).append(setback.run)
        return DueRetries(tuple(left_out), tuple(runs), frozenset(names))

    def without_left_out(self, changes: Changes) -> Changes:
        """Removes the Runs that are left out; those that hold leases count like Runs that cannot be read."""
        left_out = {uid for uid in self._setbacks if self.leaves_out(uid)}
        if not left_out:
            return changes
        holding = {
            uid
            for uid in left_out
            if (run := self._setbacks[uid].run) is not None and run.status.allocation is not None
        }
        runs = [
            change
            for change in changes.runs
            if change.after is None or change.after.value.metadata.uid not in left_out
        ]
        return changes._replace(runs=runs, unread=changes.unread | holding)


def is_edited(before: Run, after: Run) -> bool:
    """Whether the spec of a Run has changed, or it is being deleted now."""
    return (
        before.metadata.generation != after.metadata.generation
        or before.metadata.deletion_timestamp != after.metadata.deletion_timestamp
    )
