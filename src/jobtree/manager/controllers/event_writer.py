"""Writes Events on Runs and cordons of nodes, beside the control loop and without delaying it."""

import asyncio
from collections.abc import Awaitable, Iterable
from hashlib import sha256

from jobtree.api.kubernetes.node import CORDONED
from jobtree.api.schema.object_meta import API_VERSION
from jobtree.api.schema.quantities import SECOND, format_time
from jobtree.kube.http import api_requests
from jobtree.kube.http.api_errors import FencedError, KubeError, StatusError
from jobtree.kube.http.api_requests import Preconditions
from jobtree.kube.http.api_resources import EVENTS, NODES, RUNS
from jobtree.kube.watch.object_decoder import LiveNode
from jobtree.kube.watch.object_store import Change, StoredObject
from jobtree.kube.write.object_writer import Writer
from jobtree.manager.cluster_view import ClusterView
from jobtree.manager.decisions.write_set import EventNote
from jobtree.manager.log import Log, log_fields

SOURCE = "jobtree"
MAX_MESSAGE = 1024
EVENTS_AT_ONCE = 8  # few, because the decisions that they report are written first
MAX_NAME = 200  # of the part of an Event's name that is the name of the Run


class EventWriter:
    def __init__(self, writer: Writer, view: ClusterView, log: Log) -> None:
        self._writer = writer
        self._view = view
        self._log = log
        self._semaphore = asyncio.Semaphore(EVENTS_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._logged_errors: set[str] = set()

    def write_events(self, notes: Iterable[EventNote]) -> None:
        for note in notes:
            self._start_task("events", self._post(note))

    def tell_refusals(self, notes: Iterable[EventNote]) -> None:
        """Writes the reasons of refused writes into the statuses of their Runs, where that is possible."""
        for note in notes:
            self._start_task("statuses", self._write_reason(note))

    def cordon(self, nodes: Iterable[str], now: int) -> None:
        for name in nodes:
            self._start_task("nodes", self._cordon(name, now))

    def handle_node_changes(self, changes: Iterable[Change[LiveNode]]) -> None:
        """Removes the annotation of a cordon from nodes that somebody uncordoned."""
        for change in changes:
            stored = change.after
            if stored is not None and CORDONED in stored.value.annotations and not stored.value.node.cordoned:
                self._start_task("nodes", self._forget_cordon(stored))

    async def drain(self) -> None:
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _post(self, note: EventNote) -> None:
        try:
            async with self._semaphore:
                await self._writer.write(api_requests.create(EVENTS, event_document(note)))
        except StatusError as refused:
            if not refused.exists_already:
                raise

    async def _write_reason(self, note: EventNote) -> None:
        metadata = note.run.metadata
        patch = {"status": {"reason": note.reason, "message": note.message}}
        preconditions = Preconditions(metadata.name, metadata.namespace, metadata.uid)
        await self._writer.write(api_requests.merge_patch(RUNS, preconditions, patch, "status"))

    async def _cordon(self, name: str, now: int) -> None:
        """Cordons a failed node, so that nothing new is placed on it until somebody uncordons it (F3)."""
        stored = self._view.nodes.named(name)
        if stored is None or stored.value.node.cordoned:
            return
        why = f"the node failed by {format_time(now)}"
        patch = {"metadata": {"annotations": {CORDONED: why}}, "spec": {"unschedulable": True}}
        answer = await self._writer.write(
            api_requests.merge_patch(NODES, Preconditions(name, uid=stored.uid), patch)
        )
        self._view.nodes.apply_response(answer)
        self._log.say("binder", "a failed node is cordoned", node=name)

    async def _forget_cordon(self, stored: StoredObject[LiveNode]) -> None:
        patch = {"metadata": {"annotations": {CORDONED: None}}}
        preconditions = Preconditions(stored.name, uid=stored.uid, resource_version=stored.resource_version)
        self._view.nodes.apply_response(
            await self._writer.write(api_requests.merge_patch(NODES, preconditions, patch))
        )

    def _start_task(self, what: str, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(self._log_errors(what, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _log_errors(self, what: str, work: Awaitable[None]) -> None:
        try:
            await work
        except FencedError:
            return
        except KubeError as refused:
            if isinstance(refused, StatusError) and refused.is_conflict:
                return  # it has changed meanwhile, and the watch will report how
            if str(refused) not in self._logged_errors:
                self._logged_errors.add(str(refused))
                self._log.say("binder", f"{what} cannot be written", **log_fields(refused))


def event_document(note: EventNote) -> dict[str, object]:
    """Builds an Event whose name follows from its content, so that a repeated write is no second Event."""
    metadata = note.run.metadata
    at = format_time(note.at // SECOND * SECOND)
    what = "\0".join((metadata.uid, note.reason, str(note.at), note.message))
    name = f"{metadata.name[:MAX_NAME].rstrip('-.')}.{sha256(what.encode()).hexdigest()[:16]}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": metadata.namespace},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": "Run",
            "name": metadata.name,
            "namespace": metadata.namespace,
            "uid": metadata.uid,
        },
        "reason": note.reason,
        "message": note.message[:MAX_MESSAGE],
        "type": "Warning" if note.warning else "Normal",
        "source": {"component": SOURCE},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
