"""Writes a write set to the API server, in an order that survives a crash after any write.

Commit points come first, decision by decision. What follows from them is written beside the loop: leases,
Reservations and statuses. If a commit point is refused, the turn ends, because the decision was made from
something that has changed. If only a label of the Run or the like has changed, the status is written to the
new version. A status that is refused does no harm, and is written again after a pause.

If the API server refuses a decision about one Run though nothing has changed, that Run is set aside, and the
other decisions are written. Only what could use the GPUs or the budget that the Run was to give up waits for
the next plan. A Run whose promise is due before its Reservation is written is set aside in the same way.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any

import msgspec

from jobtree.api.kinds.reservation import Reservation
from jobtree.api.kinds.run import Run
from jobtree.api.schema.object_meta import API_VERSION
from jobtree.api.schema.packed_template import unpack
from jobtree.api.validation.object_parser import to_document
from jobtree.core import RunKey
from jobtree.kube.http import api_requests
from jobtree.kube.http.api_errors import FORBIDDEN, NOT_FOUND, StatusError
from jobtree.kube.http.api_requests import Preconditions
from jobtree.kube.http.api_resources import BUDGETS, RESERVATIONS, RUNS, Resource
from jobtree.kube.installation import FINALIZER
from jobtree.kube.watch.object_store import Store
from jobtree.kube.write.object_writer import BUSY_PATIENCE_SECONDS, Writer
from jobtree.manager.cluster_view import ClusterView
from jobtree.manager.controllers.set_aside import SetAside
from jobtree.manager.decisions.decision_log import SUBMITTED_LOG, is_submission
from jobtree.manager.decisions.write_set import (
    DecisionLog,
    DecisionWrites,
    ReservationWrite,
    RunWrite,
    WriteSet,
)
from jobtree.manager.log import Log
from jobtree.manager.pods.pod_documents import owned

NO_NOTICE = "Runs were to end for a promise whose Reservation is not written yet: they had no notice"
MAX_TRIES = 4  # of a status, while others change labels of the Run all the time


class WriteRefusedError(Exception):
    """A decision could not be written: the cluster has changed since it was made."""


class DecisionWriter:
    def __init__(self, writer: Writer, view: ClusterView, log: Log, set_aside: SetAside) -> None:
        self._writer = writer
        self._set_aside = set_aside
        self._view = view
        self._log = log
        self._refused_reservations: set[str] = set()  # of the present batch of reports, by name
        self._postponed: dict[RunKey, ReservationWrite] = {}  # refused, or not tried during a pause
        self._versions: dict[str, str] = {}  # of Runs, as written in this turn
        self._written_logs: list[DecisionLog] = []  # of decisions that are written
        self._unwritten_runs: list[Run] = []  # whose status was not written
        self._unwritten_names: set[str] = set()  # Budgets and Reservations whose status was not written

    async def write_decisions(self, write_set: WriteSet) -> None:
        """Writes decisions, and the Runs of stages. Raises WriteRefusedError if a decision was refused."""
        self._versions = {}
        try:
            for batch in write_set.batches:
                await self._commit(batch)
            await run_all(self._apply_child(child) for child in write_set.children)
        except StatusError as refused:
            raise WriteRefusedError(str(refused)) from refused

    def written_logs(self) -> list[DecisionLog]:
        """Returns the logs of decisions that were written since the last call."""
        logs, self._written_logs = self._written_logs, []
        return logs

    # Decisions

    async def _commit(self, batch: DecisionWrites) -> None:
        for unreserved in batch.unreserved:
            self._set_aside.leave_out_unreserved(unreserved)
        if batch.unreserved and (batch.releases or batch.moves):
            raise WriteRefusedError(NO_NOTICE)
        committed: set[str] = set()
        if batch.resolution is not None:
            try:
                await self._write_reservation(batch.resolution)
            except StatusError as refused:
                if refused.concerns_object:
                    self._set_aside.leave_out(batch.resolution.run, refused)
                raise
            self._written_logs += batch.resolution.decision_logs
            committed |= {decided.run_ref.uid for decided in batch.resolution.status.decided}
        await run_all(self._decide(write, committed) for write in batch.releases)
        for write in batch.moves:
            await self._decide(write, committed)
        for write in batch.trees:
            await self._decide(write, committed)
            decided_uids = {decided.run_ref.uid for decided in write.status.decided}
            if not self._set_aside.leaves_out(write.uid):
                committed |= decided_uids
        await run_all(self._decide(write, committed) for write in batch.acquisitions)

    async def _decide(self, write: RunWrite, committed: set[str]) -> None:
        """Writes a decision about one Run; sets the Run aside if the server refuses it.

        A decision that another object holds already is final: only the report waits. Where the Run was to
        give something up, the error is raised, because others may have been given it.
        """
        if self._set_aside.leaves_out(write.uid):
            return
        try:
            await self._write_run(write)
        except StatusError as refused:
            if not refused.concerns_object:
                raise
            self._log_set_aside(write.run, refused)
            if write.uid in committed:
                self._set_aside.pause_report(write.run, refused)
                return
            self._set_aside.leave_out(write.run, refused)
            for stage in self._stages_decided_by(write):
                self._set_aside.leave_out(stage, refused)
            if write.run.status.allocation is not None:
                raise

    def _stages_decided_by(self, write: RunWrite) -> list[Run]:
        """The Runs of the stages whose start a tree was to hold."""
        stored = (self._view.runs.get(decided.run_ref.uid) for decided in write.status.decided)
        return [run.value for run in stored if run is not None]

    def _log_set_aside(self, run: Run, refused: StatusError) -> None:
        self._log.say("binder", "a Run is set aside", run=run_label(run), why=str(refused))

    async def _write_run(self, write: RunWrite) -> None:
        """Writes the status of a Run, unless something has changed that it was decided from."""
        for tries in range(1, MAX_TRIES + 1):
            try:
                await self._write_status(write)
            except StatusError as refused:
                run = await self._unchanged_version(write)
                if not refused.is_conflict or run is None or tries == MAX_TRIES:
                    raise
                write = msgspec.structs.replace(write, run=run, version=run.metadata.resource_version)
            else:
                return

    async def _unchanged_version(self, write: RunWrite) -> Run | None:
        """Returns the Run as it is now, for the next write; None if something changed that planning uses."""
        metadata = write.run.metadata
        await self._read_again(RUNS, self._view.runs, metadata.name, metadata.namespace)
        stored = self._view.runs.get(write.uid)
        if stored is None or planned_fields(stored.value) != planned_fields(write.run):
            return None
        return stored.value

    async def _write_status(self, write: RunWrite) -> None:
        run = write.run
        if write.starts and FINALIZER not in run.metadata.finalizers and not run.metadata.deletion_timestamp:
            write = await self._add_finalizer(write)
            run = write.run
        metadata = {
            "name": run.metadata.name,
            "namespace": run.metadata.namespace,
            "uid": write.uid,
            "resourceVersion": self._version_of(write),
        }
        stored = self._view.runs.get(write.uid)
        is_first = is_submission(run if stored is None else stored.value)
        document = {
            "apiVersion": API_VERSION,
            "kind": "Run",
            "metadata": metadata,
            "status": to_plain(write.status),
        }
        patience = 0.0 if self._set_aside.was_refused(write.uid) else BUSY_PATIENCE_SECONDS
        answer = await self._writer.write(api_requests.replace(RUNS, document, "status"), patience)
        self._apply_run(write.uid, answer)
        self._written_logs += write.decision_logs
        if is_first:
            self._written_logs.append(SUBMITTED_LOG)

    def _version_of(self, write: RunWrite) -> str:
        """The version that a status is written to: the one it was planned from, or our own write after it."""
        return write.version or self._versions.get(write.uid, write.run.metadata.resource_version)

    async def _add_finalizer(self, write: RunWrite) -> RunWrite:
        """Keeps a Run that holds leases until they are ended; returns the write to its new version."""
        metadata, version = write.run.metadata, self._version_of(write)
        preconditions = Preconditions(metadata.name, metadata.namespace, metadata.uid, version)
        patch = {"metadata": {"finalizers": [*metadata.finalizers, FINALIZER]}}
        self._apply_run(
            write.uid, await self._writer.write(api_requests.merge_patch(RUNS, preconditions, patch))
        )
        return msgspec.structs.replace(write, version=self._versions[write.uid])

    def _apply_run(self, uid: str, answer: bytes) -> None:
        self._versions[uid] = self._view.runs.apply_response(answer)
        self._set_aside.forget(uid)

    async def _read_again(
        self, resource: Resource, store: Store[Any], name: str, namespace: str = ""
    ) -> None:
        """Reads an object after a refused write, so that the next decision is made from its present state."""
        try:
            answer = await self._writer.read(api_requests.get(resource, name, namespace))
        except StatusError as refused:
            if refused.code != NOT_FOUND:
                raise
            return  # the watch will report that it is gone
        store.apply_response(answer)

    # Statuses

    def take_unwritten(self) -> tuple[list[Run], set[str]]:
        """Returns the Runs, and the names of Budgets and Reservations, that were not written lately."""
        unwritten = self._unwritten_runs, self._unwritten_names
        self._unwritten_runs, self._unwritten_names = [], set()
        return unwritten

    def with_versions(self, write_set: WriteSet) -> WriteSet:
        """Returns the write set of this turn with the versions to which its statuses are written."""
        statuses = (
            msgspec.structs.replace(write, version=self._version_of(write)) for write in write_set.statuses
        )
        return msgspec.structs.replace(write_set, statuses=tuple(statuses))

    async def write_reports(self, write_set: WriteSet) -> None:
        """Writes Reservations and statuses; ``take_unwritten`` returns those that failed."""
        self._refused_reservations = set()
        reservation_writes: list[Awaitable[None]] = [
            *(
                self._ignore_errors("reservation", seen.metadata.name, self._delete_reservation(seen))
                for seen in write_set.reservations_to_delete
            ),
            *(
                self._ignore_errors("reservation", key[1], self._detach_reservation(*key))
                for key in write_set.reservations_to_keep
            ),
            *(
                self._ignore_errors("reservation", write.name, self._write_reservation(write))
                for write in self._due_reservations(write_set)
            ),
        ]
        await run_all(reservation_writes)
        await run_all(
            [
                *(
                    self._write_run_status(self._as_written(write))
                    for write in write_set.statuses
                    if not self._set_aside.pauses(write.uid)
                ),
                *(
                    self._ignore_errors("budget", name, self._write_budget(name, to_plain(status)))
                    for name, status in write_set.budgets
                    if not self._set_aside.pauses(name)
                ),
                *(
                    self._ignore_errors("finalizer", run.metadata.name, self._remove_finalizer(run))
                    for run in write_set.runs_without_finalizer
                ),
            ]
        )

    def _due_reservations(self, write_set: WriteSet) -> list[ReservationWrite]:
        """The Reservations to write now, also those that were refused before; the others wait."""
        latest = self._postponed | {write.key: write for write in write_set.reservations}
        due = {
            key: write
            for key, write in latest.items()
            if not (self._set_aside.leaves_out(write.run.metadata.uid) or self._set_aside.pauses(write.name))
        }
        self._postponed = {key: write for key, write in latest.items() if key not in due}
        return list(due.values())

    def forget_postponed(self) -> None:
        """Drops writes of Reservations that wait: the model is built again, and decides them again."""
        self._postponed.clear()

    def _as_written(self, write: RunWrite) -> RunWrite:
        """Leaves an unwritten Reservation out of the status of its Run: its number is not lost."""
        status, before = write.status, write.run.status
        if status.reservation not in self._refused_reservations or self._view.reservations.named(
            status.reservation, write.run.metadata.namespace
        ):
            return write
        self._unwritten_runs.append(write.run)
        without_reservation = msgspec.structs.replace(
            status, reservation=before.reservation, reservations_made=before.reservations_made
        )
        return msgspec.structs.replace(write, status=without_reservation)

    async def _write_run_status(self, write: RunWrite) -> None:
        try:
            await self._write_run(write)
        except StatusError as refused:
            if refused.concerns_object:
                self._set_aside.pause_report(write.run, refused)
            else:
                self._unwritten_runs.append(write.run)
            if not refused.is_conflict and refused.code != NOT_FOUND:
                self._log.say("binder", "a status was refused", run=run_label(write.run), why=str(refused))

    async def _ignore_errors(self, what: str, name: str, work: Awaitable[None]) -> None:
        """Awaits a write of a status; if it is refused, it is written again in the next turn."""
        try:
            await work
            self._set_aside.forget(name)
        except StatusError as refused:
            self._unwritten_names.add(name)
            self._refused_reservations.add(name)
            if refused.concerns_object:
                self._set_aside.pause_name(name, refused)
            if refused.code == FORBIDDEN or not (refused.is_conflict or refused.code == NOT_FOUND):
                self._log.say("binder", f"a {what} was refused", why=str(refused))

    async def _write_reservation(self, write: ReservationWrite) -> None:
        try:
            await self._send_reservation(write)
        except StatusError as refused:
            if refused.concerns_object:
                self._postponed[write.key] = write
            raise
        self._postponed.pop(write.key, None)

    async def _send_reservation(self, write: ReservationWrite) -> None:
        namespace, name = write.key
        stored = self._view.reservations.named(name, namespace)
        kind = {"apiVersion": API_VERSION, "kind": "Reservation"}
        if stored is None:
            if write.spec is None:
                return
            document = {**kind, "metadata": owned(write.run, name), "spec": to_plain(write.spec)}
            self._view.reservations.apply_response(await self._writer.create(RESERVATIONS, document))
        elif write.spec is not None and stored.value.spec != write.spec:
            preconditions = Preconditions(name, namespace, stored.uid, stored.resource_version)
            patch = {"spec": {"earliestStart": None, "intendedSlice": None, **to_plain(write.spec)}}
            self._view.reservations.apply_response(
                await self._writer.write(api_requests.merge_patch(RESERVATIONS, preconditions, patch))
            )
        stored = self._view.reservations.named(name, namespace)
        if stored is None or stored.value.status == write.status:
            return
        metadata = {
            "name": name,
            "namespace": namespace,
            "uid": stored.uid,
            "resourceVersion": stored.resource_version,
        }
        document = {**kind, "metadata": metadata, "status": to_plain(write.status)}
        try:
            answer = await self._writer.write(api_requests.replace(RESERVATIONS, document, "status"))
        except StatusError:
            await self._read_again(RESERVATIONS, self._view.reservations, name, namespace)
            raise
        self._view.reservations.apply_response(answer)

    async def _apply_child(self, child: Run) -> None:
        """Creates or changes the Run of a stage (J2); another Run that has its name is left alone (H3)."""
        stored = self._view.runs.named(child.metadata.name, child.metadata.namespace)
        document, tree_uid = to_document(child), child.metadata.owner_references[0].uid
        if self._set_aside.pauses(tree_uid) or not (stored is None or is_owned_by(tree_uid, stored.value)):
            return
        try:
            if stored is None:
                answer = await self._writer.create(RUNS, document)
            else:
                preconditions = Preconditions(
                    stored.name, stored.namespace, stored.uid, stored.resource_version
                )
                patch = {"spec": patch_to(to_plain(stored.value.spec), document["spec"])}
                answer = await self._writer.write(api_requests.merge_patch(RUNS, preconditions, patch))
        except StatusError as refused:
            if not refused.concerns_object:
                raise
            self._log.say("binder", "a stage was refused", run=run_label(child), why=str(refused))
            tree = self._view.runs.get(tree_uid)
            if tree is not None:
                self._set_aside.pause_report(tree.value, refused)
            return
        self._view.runs.apply_response(answer)

    async def _delete_reservation(self, seen: Reservation) -> None:
        """Deletes a Reservation, unless it was written since it was seen: it may hold a draw by now."""
        metadata = seen.metadata
        stored = self._view.reservations.get(metadata.uid)
        if stored is not None and stored.value == seen:
            preconditions = Preconditions(
                metadata.name, metadata.namespace, metadata.uid, stored.resource_version
            )
            await self._writer.delete(RESERVATIONS, preconditions)

    async def _detach_reservation(self, namespace: str, name: str) -> None:
        """Removes the owner of a Reservation: losers may check the draw when the winner is gone."""
        stored = self._view.reservations.named(name, namespace)
        if stored is not None:
            preconditions = Preconditions(name, namespace, stored.uid, stored.resource_version)
            patch = {"metadata": {"ownerReferences": None}}
            answer = await self._writer.write(api_requests.merge_patch(RESERVATIONS, preconditions, patch))
            self._view.reservations.apply_response(answer)

    async def _write_budget(self, name: str, status: object) -> None:
        stored = self._view.budgets.named(name)
        if stored is None:
            return
        metadata = {"name": name, "uid": stored.uid, "resourceVersion": stored.resource_version}
        document = {"apiVersion": API_VERSION, "kind": "Budget", "metadata": metadata, "status": status}
        try:
            self._view.budgets.apply_response(
                await self._writer.write(api_requests.replace(BUDGETS, document, "status"))
            )
        except StatusError:
            await self._read_again(BUDGETS, self._view.budgets, name)
            raise

    async def _remove_finalizer(self, run: Run) -> None:
        """Lets a Run be deleted, as all its leases are ended."""
        stored = self._view.runs.get(run.metadata.uid)
        if stored is None or FINALIZER not in stored.value.metadata.finalizers:
            return
        if self._owns_proof(stored.value):
            self._unwritten_names.add(stored.name)  # the next turn tries to detach the proof again
            return
        rest = [name for name in stored.value.metadata.finalizers if name != FINALIZER]
        preconditions = Preconditions(stored.name, stored.namespace, stored.uid, stored.resource_version)
        await self._writer.write(
            api_requests.merge_patch(RUNS, preconditions, {"metadata": {"finalizers": rest}})
        )

    def _owns_proof(self, run: Run) -> bool:
        """Whether a record of a lottery would be deleted with the Run: losers may still check it."""
        metadata = run.metadata
        names = (f"{metadata.name}-{number}" for number in range(1, run.status.reservations_made + 1))
        reservations = (self._view.reservations.named(name, metadata.namespace) for name in names)
        return any(
            stored is not None
            and stored.value.status.lottery is not None
            and any(reference.uid == metadata.uid for reference in stored.value.metadata.owner_references)
            for stored in reservations
        )


def planned_fields(run: Run) -> tuple[object, ...]:
    """Returns the fields of a Run that decisions are made from.

    The generation stands for the spec, the revision of the status for all earlier decisions.
    """
    metadata = run.metadata
    return metadata.generation, metadata.deletion_timestamp, metadata.owner_references, run.status.revision


def to_plain(value: msgspec.Struct) -> Any:  # noqa: ANN401  any JSON value
    return msgspec.to_builtins(value, enc_hook=unpack)


def patch_to(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Returns a merge patch that turns ``old`` into ``new``; fields that are not in ``new`` are removed."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        is_nested = isinstance(value, dict) and isinstance(old.get(key), dict)
        patch[key] = patch_to(old[key], value) if is_nested else value
    return patch


def is_owned_by(uid: str, run: Run) -> bool:
    return any(reference.controller and reference.uid == uid for reference in run.metadata.owner_references)


def run_label(run: Run) -> str:
    return f"{run.metadata.namespace}/{run.metadata.name}"


async def run_all(writes: Iterable[Awaitable[None]]) -> None:
    """Awaits all writes together, and raises the first error when all of them have ended."""
    for outcome in await asyncio.gather(*writes, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
