"""Writes the reason into the status of Runs that cannot be read, so that no Run is lost (I11).

Such a Run was accepted under another version of the kinds, or it breaks a rule that the API server does not
know. It waits until somebody corrects or deletes it. If it holds leases, they stay, and so does its phase. If
it is being deleted, its finalizer is removed when its leases are ended.
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
        self._reported: dict[str, str] = {}  # by UID: the reason that was written last

    async def report(self, now: int) -> None:
        """Writes the reasons that are new; what fails is tried again in the next turn."""
        unreadable_runs = self._view.runs.unreadable
        self._reported = {uid: why for uid, why in self._reported.items() if uid in unreadable_runs}
        for uid, unreadable in list(unreadable_runs.items()):
            try:
                if unreadable.head.metadata.deletion_timestamp is not None:
                    request = self._finalizer_request(unreadable)
                else:
                    request = await self._status_request(unreadable, now)
                if request is not None:
                    self._view.runs.apply_response(await self._writer.write(request))
                    self._reported[uid] = unreadable.why
            except FencedError:
                raise
            except KubeError as refused:
                self._log.say("binder", "a status was refused", run=unreadable.title, why=str(refused))

    async def _status_request(self, unreadable: Unreadable, now: int) -> Request | None:
        """Builds the write of a status that keeps all other fields; None if there is nothing to write."""
        metadata, stored = unreadable.head.metadata, self._view.runs.get(unreadable.head.metadata.uid)
        if self._reported.get(metadata.uid) == unreadable.why or stored is not None:
            return None  # written already; or the Run was readable before, and is planned as it was
        verdict = Verdict("Pending", (Cause(Reason.UNREADABLE, unreadable.why),))
        status = {"reason": verdict.reason, "message": verdict.message[:MAX_MESSAGE]}
        if unreadable.head.phase in ("", "Pending"):
            status |= to_plain(pending(metadata.generation, now))
        existing = msgspec.json.decode(
            await self._writer.read(api_requests.get(RUNS, metadata.name, metadata.namespace)),
            type=dict[str, Any],
        )
        kept = {key: existing["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion")}
        document = {
            "apiVersion": API_VERSION,
            "kind": "Run",
            "metadata": kept,
            "status": {**(existing.get("status") or {}), **status},
        }
        return api_requests.replace(RUNS, document, "status")

    def _finalizer_request(self, unreadable: Unreadable) -> Request | None:
        """Builds the removal of the finalizer; None while the Run has open leases."""
        uid, finalizers = unreadable.head.metadata.uid, unreadable.head.metadata.finalizers
        open_leases = any(
            lease.value.spec.run_ref.uid == uid and lease.value.status.end is None
            for lease in self._view.leases
        )
        if FINALIZER not in finalizers or open_leases or self._view.runs.get(uid) is not None:
            return None
        rest = [name for name in finalizers if name != FINALIZER]
        return api_requests.merge_patch(RUNS, seen(unreadable), {"metadata": {"finalizers": rest}})


def seen(unreadable: Unreadable) -> Preconditions:
    metadata = unreadable.head.metadata
    return Preconditions(metadata.name, metadata.namespace, metadata.uid, metadata.resource_version)


def pending(generation: int, now: int) -> RunStatus:
    """Returns the status of a waiting Run of which nothing else is known."""
    since = format_time(now)
    conditions = tuple(
        Condition(type=name, status="False", reason=str(Reason.UNREADABLE), last_transition_time=since)
        for name, _ in CONDITIONS
    )
    return RunStatus(phase="Pending", conditions=conditions, observed_generation=generation)
