"""Creates and ends Lease objects beside the control loop; the pods of a Run wait for its leases.

The allocation in the status of the Run is the decision, so no other decision waits for these writes (H4).
Each turn lists all leases that are not seen yet; those that are being written, or that exist and cannot be
read, are left out. A Lease object that the API server refuses is created later, and its Run holds it
meanwhile.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from jobtree.api.kinds.run import Ending
from jobtree.api.validation.object_parser import to_document
from jobtree.core import GpuLease, lease_to_object
from jobtree.kube.http import api_requests
from jobtree.kube.http.api_errors import NOT_FOUND, KubeError, StatusError
from jobtree.kube.http.api_requests import Preconditions
from jobtree.kube.http.api_resources import LEASES
from jobtree.kube.write.object_writer import Writer
from jobtree.manager.cluster_view import ClusterView
from jobtree.manager.controllers.set_aside import SetAside
from jobtree.manager.decisions.lease_objects import PendingLeaseWrites
from jobtree.manager.log import Log


class LeaseWriter:
    """``fail`` is told why leases could not be written that the server did not refuse."""

    def __init__(
        self,
        writer: Writer,
        view: ClusterView,
        log: Log,
        set_aside: SetAside,
        fail: Callable[[KubeError], None],
    ) -> None:
        self._writer = writer
        self._view = view
        self._log = log
        self._set_aside = set_aside
        self._fail = fail
        self._making: dict[str, asyncio.Task[None]] = {}  # by name of the lease
        self._of_runs: dict[str, set[asyncio.Task[None]]] = {}  # by UID
        self._ending: dict[str, asyncio.Task[None]] = {}  # by name of the lease

    def write(self, pending: PendingLeaseWrites) -> None:
        """Begins to write those leases that are not being written."""
        unreadable = {entry.head.metadata.name for entry in self._view.leases.unreadable.values()}
        for lease in pending.opens:
            if lease.name not in self._making and lease.name not in unreadable and not self._waits(lease):
                task = self._making[lease.name] = self._start(self._make(lease), self._making, lease.name)
                self._of_runs.setdefault(lease.uid, set()).add(task)
                task.add_done_callback(partial(self._forget, lease.uid))
        for ending in pending.ends:
            if ending.lease not in self._ending:
                self._ending[ending.lease] = self._start(self._end(ending), self._ending, ending.lease)

    async def written(self, uid: str) -> None:
        """Waits until all leases of a Run are written, or refused."""
        if uid in self._of_runs:
            await asyncio.wait(set(self._of_runs[uid]))

    async def drain(self) -> None:
        while tasks := {*self._making.values(), *self._ending.values()}:
            await asyncio.wait(tasks)

    def _forget(self, uid: str, task: asyncio.Task[None]) -> None:
        self._of_runs[uid].discard(task)
        if not self._of_runs[uid]:
            del self._of_runs[uid]

    def _waits(self, lease: GpuLease) -> bool:
        """Whether a lease exists, or its creation or its Run is set aside."""
        return (
            self._set_aside.leaves_out(lease.uid)
            or self._set_aside.pauses(lease.name)
            or self._view.leases.named(lease.name) is not None
        )

    def _start(
        self, work: Awaitable[None], tasks: dict[str, asyncio.Task[None]], name: str
    ) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self._report_failure(work))
        task.add_done_callback(lambda _: tasks.pop(name, None))
        return task

    async def _report_failure(self, work: Awaitable[None]) -> None:
        try:
            await work
        except KubeError as error:
            self._fail(error)

    async def _make(self, lease: GpuLease) -> None:
        try:
            answer = await self._writer.create(LEASES, to_document(lease_to_object(lease)))
        except StatusError as refused:
            if not refused.concerns_object:
                raise
            self._log.say("binder", "a lease was refused", lease=lease.name, why=str(refused))
            self._set_aside.pause_name(lease.name, refused)
            return
        self._set_aside.forget(lease.name)
        self._view.leases.apply_response(answer)

    async def _end(self, ending: Ending) -> None:
        """Ends a lease that exists; one that was not seen yet is ended when it is seen."""
        making = self._making.get(ending.lease)
        if making is not None:
            await asyncio.wait([making])
        stored = self._view.leases.named(ending.lease)
        if stored is None or stored.value.status.end is not None:
            return
        patch = {"status": {"end": ending.end, "closureReason": ending.reason}}
        try:
            self._view.leases.apply_response(
                await self._writer.write(
                    api_requests.merge_patch(
                        LEASES, Preconditions(stored.name, uid=stored.uid), patch, "status"
                    )
                )
            )
        except StatusError as refused:
            self._log.say("binder", "a lease could not be ended", lease=ending.lease, why=str(refused))
            await self._read_again(ending.lease)

    async def _read_again(self, name: str) -> None:
        """Reads a lease after a refused write, so that the next turn sees its present state."""
        try:
            self._view.leases.apply_response(await self._writer.read(api_requests.get(LEASES, name)))
        except StatusError as refused:
            if refused.code != NOT_FOUND:
                raise
