"""Runs that no plan has seen yet: how many a turn takes in, and whose (H4).

A turn takes in a share of them, which is adapted so that a turn takes ``TURN_MS``. Namespaces take turns, so
thousands of new Runs in one namespace delay the first Run of another one by no more than the present turn.
Within a namespace the oldest come first. Among the Runs that are taken in, admission goes by creation time
(P7). A Run with a status, or for which another object holds a decision or a promise, was taken in before: a
restart takes in all of these at once.

What a Run costs counts: a tree has a Run for each stage, and a large gang takes longer to plan and to write.
"""

from collections.abc import Iterable
from heapq import heappop, heappush

from jobtree.api.kinds.reservation import Reservation
from jobtree.api.kinds.run import Run, RunSpec
from jobtree.api.schema.quantities import parse_time
from jobtree.kube.watch.object_store import Change
from jobtree.manager.cluster_view import Changes

TURN_MS = 250
LEAST_SHARE, FIRST_SHARE, MOST_SHARE = 8, 32, 256  # small Runs that a turn takes in, or as much in others
GPUS_OF_SMALL_RUN = 256
EPOCH = "1970-01-01T00:00:00Z"  # for an object that has no creation time

Age = tuple[int, str, str]  # creation time, name and UID


class Arrivals:
    def __init__(self) -> None:
        self._share = FIRST_SHARE
        self._new: dict[str, Change[Run]] = {}  # by UID
        self._queues: dict[str, list[Age]] = {}  # heaps, by namespace; the next namespace first

    @property
    def are_left(self) -> bool:
        """Whether new Runs wait for the next turn."""
        return bool(self._new)

    def adapt(self, turn_ms: int) -> None:
        """Adapts the share to the time that the last turn took."""
        if turn_ms > TURN_MS:
            self._share = max(LEAST_SHARE, self._share // 2)
        elif turn_ms < TURN_MS // 2 and self.are_left:
            self._share = min(MOST_SHARE, self._share * 2)

    def restart(self) -> None:
        """Forgets all new Runs: ``take`` is given all objects next."""
        self._new, self._queues = {}, {}

    def take(self, changes: Changes) -> Changes:
        """Returns the changes with those new Runs that this turn takes in; the others wait."""
        held = {uid for change in changes.reservations for uid in runs_held_by(change)}
        held |= {uid for change in changes.runs for uid in stages_held_by(change)}
        runs = [change for change in changes.runs if not self._queue(change, held)]
        return changes._replace(runs=[*runs, *self._next_share()])

    def _queue(self, change: Change[Run], held: set[str]) -> bool:
        """Queues a new Run, or updates one in the queue; returns whether the turn leaves it out."""
        before, after = change
        if after is None:
            return before is not None and self._new.pop(before.uid, None) is not None
        uid = after.uid
        waits = self._new.pop(uid, None) is not None
        if (before is not None and not waits) or is_planned(after.value, held):
            return False
        self._new[uid] = Change(None, after)
        if not waits:
            created = parse_time(after.value.metadata.creation_timestamp or EPOCH)
            heappush(self._queues.setdefault(after.namespace, []), (created, after.name, uid))
        return True

    def _next_share(self) -> Iterable[Change[Run]]:
        left = self._share
        while left > 0 and self._queues:
            namespace = next(iter(self._queues))
            queue = self._queues.pop(namespace)
            change = self._new.pop(heappop(queue)[2], None)
            if queue:
                self._queues[namespace] = queue
            if change is not None and change.after is not None:
                left -= cost_of(change.after.value.spec)
                yield change


def is_planned(run: Run, held: set[str]) -> bool:
    """Whether a plan has seen the Run: its status says so, or another object holds what was planned."""
    owners = {reference.uid for reference in run.metadata.owner_references}
    return run.status.phase is not None or not held.isdisjoint({run.metadata.uid, *owners})


def runs_held_by(change: Change[Reservation]) -> list[str]:
    """Returns the UIDs of the Runs that a Reservation is for, or holds a decision about."""
    if change.after is None:
        return []
    reservation = change.after.value
    return [reservation.spec.run_ref.uid, *(decided.run_ref.uid for decided in reservation.status.decided)]


def stages_held_by(change: Change[Run]) -> list[str]:
    """Returns the UIDs of the stages whose start a tree holds."""
    return [decided.run_ref.uid for decided in change.after.value.status.decided] if change.after else []


def cost_of(spec: RunSpec) -> int:
    """Returns how many small Runs cost a turn as much as this one."""
    stages = sum(1 + len(stage.stages) for stage in spec.stages)
    gpus = spec.resources.total_gpus if spec.resources is not None else 0
    return 1 + stages + gpus // GPUS_OF_SMALL_RUN
