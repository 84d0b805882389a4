"""Runs that cannot be read are told so: no Run is lost (I11).

The API server took them, under another version of the kinds perhaps, or Jobtree knows a rule that the server
does not. Each waits with its reason in its status until somebody mends or deletes it. One that holds
something keeps it: its leases stay, and its phase is left alone. One that is being deleted goes when its
leases are ended, as any other.
"""

from typing import Any

import msgspec

from jobtree.api.kinds.run import RunStatus
from jobtree.api.schema.object_meta import API_VERSION, Condition
from jobtree.api.schema.quantities import format_time
from jobtree.core import CONDITIONS, Cause, Reason, Verdict
from jobtree.kube.http import api_requests
from jobtree.kube.http.api_errors import FencedError, KubeError
from jobtree.kube.http.api_requests import Preconditions, Request
from jobtree.kube.http.api_resources import RUNS
from jobtree.kube.installation import FINALIZER
from jobtree.kube.watch.object_store import Unreadable
from jobtree.kube.write.object_writer import Writer
from jobtree.manager.cluster_view import ClusterView
from jobtree.manager.controllers.decision_writer import to_plain
from jobtree.manager.log import Log

MAX_MESSAGE = 4096


class UnreadableRuns:
    def __init__(self, writer: Writer, view: ClusterView, log: Log) -> None:
        self._writer = writer
        self._view = view
        self._log = log
        self._reported: dict[str, str] = {}  # by UID: what was told last

    async def report(self, now: int) -> None:
        """Whatever is not written now is written with the next change."""
        unreadable = self._view.runs.unreadable
        self._reported = {uid: said for uid, said in self._reported.items() if uid in unreadable}
        for uid, unreadable_run in list(unreadable.items()):
            try:
                going = unreadable_run.head.metadata.deletion_timestamp is not None
                request = (
                    self._remove_finalizer(unreadable_run)
                    if going
                    else await self._status_request(unreadable_run, now)
                )
                if request is not None:
                    self._view.runs.apply_response(await self._writer.write(request))
                    self._reported[uid] = unreadable_run.why
            except FencedError:
                raise
            except KubeError as refused:
                self._log.say("binder", "a status was refused", run=unreadable_run.title, why=str(refused))

    async def _status_request(self, unreadable_run: Unreadable, now: int) -> Request | None:
        """The status that it has, as far as nobody can read it, with the reason in it."""
        metadata, stored = unreadable_run.head.metadata, self._view.runs.get(unreadable_run.head.metadata.uid)
        if self._reported.get(metadata.uid) == unreadable_run.why or stored is not None:
            return None  # told; or it was readable before, and goes on as it was
        verdict = Verdict("Pending", (Cause(Reason.UNREADABLE, unreadable_run.why),))
        status = {"reason": verdict.reason, "message": verdict.message[:MAX_MESSAGE]}
        if unreadable_run.head.phase in ("", "Pending"):
            status |= to_plain(pending(metadata.generation, now))
        document = msgspec.json.decode(
            await self._writer.read(api_requests.get(RUNS, metadata.name, metadata.namespace)),
            type=dict[str, Any],
        )
        kept = {key: document["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion")}
        document = {
            "apiVersion": API_VERSION,
            "kind": "Run",
            "metadata": kept,
            "status": {**(document.get("status") or {}), **status},
        }
        return api_requests.replace(RUNS, document, "status")

    def _remove_finalizer(self, unreadable_run: Unreadable) -> Request | None:
        uid, finalizers = unreadable_run.head.metadata.uid, unreadable_run.head.metadata.finalizers
        open_leases = any(
            held.value.spec.run_ref.uid == uid and held.value.status.end is None for held in self._view.leases
        )
        if FINALIZER not in finalizers or open_leases or self._view.runs.get(uid) is not None:
            return None
        rest = [name for name in finalizers if name != FINALIZER]
        return api_requests.merge_patch(RUNS, seen(unreadable_run), {"metadata": {"finalizers": rest}})


def seen(unreadable_run: Unreadable) -> Preconditions:
    metadata = unreadable_run.head.metadata
    return Preconditions(metadata.name, metadata.namespace, metadata.uid, metadata.resource_version)


def pending(generation: int, now: int) -> RunStatus:
    """The status of a Run that waits, and of which nothing else is stored."""
    since = format_time(now)
    standing = tuple(
        Condition(type=name, status="False", reason=str(Reason.UNREADABLE), last_transition_time=since)
        for name, _ in CONDITIONS
    )
    return RunStatus(phase="Pending", conditions=standing, observed_generation=generation)
