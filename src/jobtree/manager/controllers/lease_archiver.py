"""Moves closed leases that are old enough from the cluster to the archive, and loses none of their usage.

Between two turns of the control loop it takes some of the oldest leases, writes them to the archive, and has
the model carry their usage. It deletes them when the API server itself shows that their Budget and their Run
carry them. It keeps nothing that matters in memory: after a crash the same leases are found again, and a step
that was done before changes nothing. While the archive cannot be written, leases stay in the cluster, this is
logged, and it is tried again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from jobtree.api.kinds.lease import Lease
from jobtree.api.schema.quantities import parse_time
from jobtree.api.validation.object_parser import to_document
from jobtree.archive.archive_directory import ArchiveDirectory, ArchiveError
from jobtree.kube.http.api_errors import FencedError, KubeError
from jobtree.kube.http.api_requests import Preconditions
from jobtree.kube.http.api_resources import LEASES
from jobtree.kube.watch.object_store import Change, StoredObject
from jobtree.kube.write.object_writer import Writer
from jobtree.manager.cluster_view import ClusterView
from jobtree.manager.log import Log
from jobtree.manager.metrics import Metrics
from jobtree.manager.planner.planning_model import PlanningModel

BATCH_LEASES = 256  # leases that are archived together
MAX_LEAVING = 1024  # that leave at a time

CarryLeases = Callable[[list[Lease]], Awaitable[list[str]]]


class ArchiveSettings(NamedTuple):
    """Where leases go, and the pause (ms) when none is old enough or the archive cannot be written."""

    archive: ArchiveDirectory
    every_ms: int = 60_000


class LeaseArchiver:
    def __init__(
        self, settings: ArchiveSettings, writer: Writer, view: ClusterView, log: Log, metrics: Metrics
    ) -> None:
        self._settings = settings
        self._writer = writer
        self._view = view
        self._log = log
        self._metrics = metrics
        self._closed: list[tuple[int, str]] = []  # end and UID; a heap
        self._leaving: dict[str, None] = {}  # UIDs of leases that are carried and not deleted yet
        self._stuck: list[StoredObject[Lease]] = []  # that cannot be carried yet: taken last
        self._logged_trouble = ""
        self._idle_until = 0

    def restart(self) -> None:
        """Starts again with all closed leases, because the model is built again."""
        self._leaving, self._stuck = {}, []
        self._closed = [
            (parse_time(end), stored.uid) for stored in self._view.leases if (end := stored.value.status.end)
        ]
        heapify(self._closed)

    def handle_changes(self, changes: Iterable[Change[Lease]]) -> None:
        for change in changes:
            end = change.after.value.status.end if change.after is not None else None
            if end is not None and change.after is not None:
                heappush(self._closed, (parse_time(end), change.after.uid))

    async def archive_batch(self, model: PlanningModel, carry: CarryLeases, now: int) -> bool:
        """Archives, carries and deletes some leases; returns whether anything was done."""
        deleted = await self._delete()
        if len(self._leaving) >= MAX_LEAVING or now < self._idle_until:
            return deleted
        batch = self._pick(now - model.world.policy.lease_retention_ms)
        if not batch or not await self._add(batch):
            self._idle_until = now + self._settings.every_ms
            self._put_back(self._stuck)
            self._stuck = []
            return deleted
        carried = set(await carry([stored.value for stored in batch]))
        self._leaving |= {stored.uid: None for stored in batch if stored.name in carried}
        self._stuck += [stored for stored in batch if stored.name not in carried]
        return True

    # Parts

    def _pick(self, kept_since: int) -> list[StoredObject[Lease]]:
        """Returns the oldest leases that ended by that instant."""
        oldest: dict[str, StoredObject[Lease]] = {}
        while self._closed and self._closed[0][0] <= kept_since and len(oldest) < BATCH_LEASES:
            stored = self._view.leases.get(heappop(self._closed)[1])
            if stored is not None:
                oldest[stored.uid] = stored
        return list(oldest.values())

    def _put_back(self, leases: Iterable[StoredObject[Lease]]) -> None:
        for stored in leases:
            heappush(self._closed, (parse_time(stored.value.status.end or ""), stored.uid))

    async def _add(self, batch: list[StoredObject[Lease]]) -> bool:
        try:
            await asyncio.to_thread(
                self._settings.archive.add, [archived_document(stored.value) for stored in batch]
            )
        except ArchiveError as broken:
            self._log_trouble(str(broken))
            self._put_back(batch)
            return False
        self._log_trouble("")
        return True

    def _log_trouble(self, why: str) -> None:
        """Logs trouble when it begins, changes or ends; ``why`` is empty if there is none."""
        self._metrics.set_archive_failing(failing=bool(why))
        if why and why != self._logged_trouble:
            self._log.say("archive", "closed leases cannot be archived: they stay in the cluster", why=why)
        elif self._logged_trouble and not why:
            self._log.say("archive", "closed leases can be archived again")
        self._logged_trouble = why

    async def _delete(self) -> bool:
        """Deletes the leases that the API server shows as carried; returns whether there were any."""
        self._leaving = {uid: None for uid in self._leaving if self._view.leases.get(uid) is not None}
        carried = [
            stored
            for uid in self._leaving
            if (stored := self._view.leases.get(uid)) is not None and self._is_carried(stored.value)
        ]
        deleted = await asyncio.gather(
            *(self._delete_one(stored) for stored in carried), return_exceptions=True
        )
        for outcome in deleted:
            if isinstance(outcome, BaseException):
                raise outcome
        return any(deleted)

    async def _delete_one(self, stored: StoredObject[Lease]) -> bool:
        try:
            await self._writer.delete(LEASES, Preconditions(stored.name, uid=stored.uid))
        except FencedError:
            raise
        except KubeError as refused:
            self._log.say(
                "archive", "an archived lease could not be deleted", lease=stored.name, why=str(refused)
            )
            return False
        self._leaving.pop(stored.uid, None)
        return True

    def _is_carried(self, lease: Lease) -> bool:
        """Whether the statuses of its Budget and its Run, if they exist, list the lease as carried."""
        name = lease.metadata.name
        budget = self._view.budgets.named(lease.spec.payer.budget)
        run = self._view.runs.get(lease.spec.run_ref.uid)
        carriers = [stored.value.status.carried for stored in (budget, run) if stored is not None]
        return all(carried is not None and name in carried.leases for carried in carriers)


def archived_document(lease: Lease) -> dict[str, Any]:
    """Returns a lease as the archive keeps it, without resourceVersion."""
    body = to_document(lease)
    body["metadata"].pop("resourceVersion", None)
    return body
