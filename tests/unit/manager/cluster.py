"""An API server in memory, with fake kubelets, and a manager that talks to nothing else.

Time passes only when a test says so. A manager can be stopped dead after any of its writes; a new one then
begins from what the server holds. Everything of the manager runs but its sockets.
"""

import asyncio
import json
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import UUID

from jobtree.api.kinds.lease import Lease
from jobtree.api.schema.quantities import format_time
from jobtree.archive.archive_directory import ArchiveDirectory
from jobtree.core.reporting.invariants import check_invariants
from jobtree.kube.http.api_errors import FencedError, KubeError, StatusError
from jobtree.kube.http.api_requests import MERGE_PATCH, Request
from jobtree.kube.http.api_resources import (
    BUDGETS,
    CONFIG_MAPS,
    LEASES,
    NODES,
    PODS,
    RESERVATIONS,
    RUNS,
    Resource,
)
from jobtree.kube.write.object_writer import Writer
from jobtree.kube.write.write_gate import Gate
from jobtree.manager.cluster_view import ClusterView
from jobtree.manager.controllers.decision_writer import DecisionWriter, WriteRefusedError
from jobtree.manager.controllers.event_writer import EventWriter
from jobtree.manager.controllers.lease_archiver import ArchiveSettings, LeaseArchiver
from jobtree.manager.controllers.pod_reconciler import PodReconciler
from jobtree.manager.controllers.unreadable_runs import UnreadableRuns
from jobtree.manager.decisions.write_set import DecisionLog
from jobtree.manager.log import Log
from jobtree.manager.metrics import Metrics
from jobtree.manager.planner.planning_model import PlanningModel
from jobtree.manager.planner.world_gauges import WorldGauges
from jobtree.manager.process.beacon_listener import BeaconValue
from tests.unit.core.build import T0

Body = dict[str, Any]
WATCHED = {
    resource.plural: resource for resource in (BUDGETS, CONFIG_MAPS, LEASES, NODES, PODS, RESERVATIONS, RUNS)
}
KEY = bytes(range(32))


class StoppedError(BaseException):
    """The process is dead: nothing in it goes on."""


class Fault(NamedTuple):
    """What happens to one write, counted from 1."""

    number: int
    error: KubeError
    after: bool = False  # it takes effect all the same


class Silent:
    def write(self, _: str) -> int:
        return 0

    def flush(self) -> None:
        return


class Server:
    """Objects by path, with versions, preconditions, finalizers and status as Kubernetes has them."""

    def __init__(self) -> None:
        self.objects: dict[str, Body] = {}
        self.version = 0
        self.made: dict[str, int] = {}  # how often there was an object at a path
        self.now = T0
        self.watchers: list[Callable[[str, Body, bool], None]] = []
        self.writes = 0  # that were asked for
        self.fault: Fault | None = None
        self.refused: dict[str, StatusError] = {}  # by kind: none of it can be made

    async def send(self, request: Request) -> bytes:
        """Answers, unless a fault is due: before the write takes effect, or after it."""
        self.writes += request.writes
        fault = self.fault
        due = fault is not None and request.writes and self.writes == fault.number
        if fault is not None and due and not fault.after:
            raise fault.error
        answer = self._answer(request)
        if fault is not None and due:
            raise fault.error
        return answer

    def _answer(self, request: Request) -> bytes:
        path = request.target.partition("?")[0]
        body = json.loads(request.body) if request.body else {}
        if request.method == "GET":
            return json.dumps(self.find(path)).encode()
        if request.method == "POST":
            if path.rpartition("/")[2] in self.refused:
                raise self.refused[path.rpartition("/")[2]]
            return json.dumps(self.create(path, body)).encode()
        if request.method == "DELETE":
            return json.dumps(self.delete(path, body.get("preconditions", {}))).encode()
        subresource = path.rpartition("/")[2] if path.endswith("/status") else ""
        return json.dumps(
            self.change(
                path.removesuffix("/status"), body, subresource, merge=request.content_type == MERGE_PATCH
            )
        ).encode()

    def find(self, path: str) -> Body:
        if path not in self.objects:
            raise StatusError(404, "NotFound", f"{path} is not there")
        return self.objects[path]

    def create(self, collection: str, body: Body) -> Body:
        path = f"{collection}/{body['metadata']['name']}"
        if path in self.objects:
            raise StatusError(409, "AlreadyExists", f"{path} is there")
        made = self.made[path] = self.made.get(path, 0) + 1
        kept = {key: value for key, value in body.items() if key != "status" or self.is_core(path)}
        metadata = {
            **body["metadata"],
            "uid": str(UUID(bytes=sha256(f"{path} {made}".encode()).digest()[:16])),
            "creationTimestamp": format_time(self.now // 1000 * 1000),
            "generation": 1,
        }
        return self._put(path, {**kept, "metadata": metadata})

    def is_core(self, path: str) -> bool:
        return path.startswith("/api/")

    def change(self, path: str, body: Body, subresource: str, *, merge: bool) -> Body:
        old = self.find(path)
        asked = body.get("metadata", {})
        for field in ("uid", "resourceVersion"):
            if asked.get(field) not in (None, old["metadata"][field]):
                raise StatusError(409, "Conflict", f"{path} has another {field}")
        new = merged(old, body) if merge else {**old, **body, "metadata": {**old["metadata"], **asked}}
        if subresource:
            new = {**old, "status": new.get("status", {})}
        elif not self.is_core(path):
            new = (
                {**new, "status": old["status"]}
                if "status" in old
                else {k: v for k, v in new.items() if k != "status"}
            )
            if new["spec"] != old["spec"]:
                new["metadata"] = {**new["metadata"], "generation": old["metadata"]["generation"] + 1}
        if self._without_version(new) == self._without_version(old):
            return old
        if old.get("kind") == "Lease":
            assert new["spec"] == old["spec"], "a Lease's spec never changes"
            assert "end" not in old.get("status", {}), f"{path} ends twice"
        if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers"):
            return self._remove(path)
        return self._put(path, new)

    def _without_version(self, body: Body) -> Body:
        return {**body, "metadata": {**body["metadata"], "resourceVersion": ""}}

    def delete(self, path: str, preconditions: Body | None = None) -> Body:
        body = self.find(path)
        uid = (preconditions or {}).get("uid")
        if uid not in (None, body["metadata"]["uid"]):
            raise StatusError(409, "Conflict", f"{path} is another one")
        if not body["metadata"].get("finalizers"):
            return self._remove(path)
        if body["metadata"].get("deletionTimestamp"):
            return body
        at = format_time(self.now // 1000 * 1000)
        return self._put(path, {**body, "metadata": {**body["metadata"], "deletionTimestamp": at}})

    def _put(self, path: str, body: Body) -> Body:
        self.version += 1
        body = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        self.objects[path] = body
        for watcher in self.watchers:
            watcher(path, body, True)
        return body

    def _remove(self, path: str) -> Body:
        body = self.objects.pop(path)
        self.version += 1
        for watcher in self.watchers:
            watcher(path, body, False)
        uid = body["metadata"]["uid"]
        for other, owned in list(self.objects.items()):  # the garbage collector
            owners = [owner["uid"] for owner in owned["metadata"].get("ownerReferences", [])]
            if uid in owners and other in self.objects:
                self.delete(other)
        return body

    # What people see

    def all(self, resource: Resource) -> list[Body]:
        prefix = resource.path().rpartition("/")[0]
        return [
            body
            for path, body in sorted(self.objects.items())
            if path.startswith(prefix) and path.split("/")[-2] == resource.plural
        ]

    def run(self, name: str) -> Body:
        return self.find(RUNS.path("ns", name))


def merged(old: Any, patch: Any) -> Any:  # noqa: ANN401
    if not isinstance(patch, dict) or not isinstance(old, dict):
        return patch
    result = dict(old)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key, {}) if isinstance(value, dict) else None, value)
    return result


class Manager:
    """One life of the manager."""

    def __init__(self, server: Server, stop_after: int = 0, archive: ArchiveDirectory | None = None) -> None:
        self.server = server
        self.gate = Gate(lambda: not self.dead, self._after_write)
        self._stop_after = stop_after
        self.dead = False
        self.view = ClusterView("jobtree-system", lambda *_: None, lambda: None)
        self.writer = Writer(server, self.gate, sleep=self._no_sleep)  # type: ignore[arg-type]
        log = Log(Silent())  # type: ignore[arg-type]
        self.model = PlanningModel(KEY, check_every_ms=0)
        self.carrier = DecisionWriter(self.writer, self.view, log)
        self.keeper = PodReconciler(self.writer, self.view, log, lambda: server.now, lambda: None)
        self.herald = EventWriter(self.writer, self.view, log)
        self.heard: list[BeaconValue] = []  # of the beacon
        self.rounds: tuple[tuple[str, int], ...] = ()  # that draws wait for
        self.misfits = UnreadableRuns(self.writer, self.view, log)
        self.violations: list[str] = []
        self.metrics = Metrics()
        self.metrics.of_world = WorldGauges(
            lambda: self.model.world, lambda: server.now, self.metrics.forget_domains
        ).page
        self.archivist = (
            LeaseArchiver(ArchiveSettings(archive, 0), self.writer, self.view, log, self.metrics)
            if archive
            else None
        )
        self.lines: list[
            tuple[str, dict[str, Any]]
        ] = []  # of the log: the part that speaks, and what it says
        for store, _ in self.view.by_resource().values():
            store.restart()
        for path, body in server.objects.items():
            self._watch(path, body, there=True)
        for store, _ in self.view.by_resource().values():
            store.finish()
        server.watchers = [lambda path, body, there: self._watch(path, body, there=there)]
        self.load()

    async def _no_sleep(self, _: float) -> None:
        await asyncio.sleep(0)

    def _after_write(self, count: int) -> None:
        if self._stop_after and count >= self._stop_after:
            self.dead = True
            self.server.watchers = []
            raise StoppedError

    def _watch(self, path: str, body: Body, *, there: bool) -> None:
        plural = path.split("/")[-2]
        if plural in WATCHED:
            store, _ = self.view.by_resource()[WATCHED[plural]]
            (store.upsert if there else store.delete)(json.dumps(body).encode())

    def load(self) -> None:
        changes = self.view.drain()
        self.keeper.handle_changes(changes.pods)
        self.herald.handle_node_changes(changes.nodes)
        self.keeper.restart()
        if self.archivist:
            self.archivist.restart()
        self.violations += map(str, self.model.load(self.view.everything(), self.server.now))

    async def _turn(self) -> bool:
        """One turn of the loop; whether its decisions could be written."""
        changes = self.view.drain()
        self.keeper.handle_changes(changes.pods)
        self.herald.handle_node_changes(changes.nodes)
        if self.archivist:
            self.archivist.handle_changes(changes.leases)
        if self.model.status_is_ahead(changes):
            self.load()
            return False
        news = [*self.keeper.outcomes(), *self.heard]
        step = self.model.take_turn(changes, news, self.server.now)
        self.rounds = step.beacon_rounds
        self.violations += map(str, step.violations)
        for measure in step.measures:
            self.metrics.record(measure)
        try:
            await self.carrier.write_decisions(step)
            self._record((*self.carrier.done(), *step.logs))
            self.keeper.set_desired(step.desired_pods)
            self.keeper.start_reconciling()
            await self.carrier.write_statuses(step)
        except FencedError:
            raise
        except (WriteRefusedError, KubeError):
            await self.keeper.drain()
            self.load()
            return False
        finally:
            self._record(self.carrier.done())
        for run in self.carrier.unwritten_runs:
            self.model.telling.mark_unwritten(run.metadata.uid, (run.metadata.namespace, run.metadata.name))
        self.model.telling.mark_names_unwritten(self.carrier.unwritten_names)
        await self.keeper.drain()
        self.herald.write_events((*step.notes, *self.keeper.event_notes()))
        self.herald.cordon(step.cordons, self.server.now)
        await self.misfits.report(self.server.now)
        await self.herald.drain()
        filed = self.archivist and await self.archivist.archive_batch(
            self.model, self._set_aside, self.server.now
        )
        if self.dead:
            raise StoppedError
        return not filed and not (
            self.carrier.unwritten_runs or self.carrier.unwritten_names or self.keeper.has_outcomes
        )

    async def _set_aside(self, leases: list[Lease]) -> list[str]:
        return self.model.carry_leases(leases)

    def _record(self, deeds: Iterable[DecisionLog]) -> None:
        for deed in deeds:
            self.lines += deed.lines
            for measure in deed.measures:
                self.metrics.record(measure)

    def logged(self, message: str) -> list[object]:
        """The leases that lines with this message are about."""
        return [line.get("lease") for _, line in self.lines if message in str(line["message"])]

    def turn(self) -> None:
        """Turn once; nobody looks at what came of it yet."""
        asyncio.run(self._turn())

    def settle(self) -> None:
        """Turn until nothing is written any more."""
        for _ in range(100):
            before = self.server.version
            try:
                written = asyncio.run(self._turn())
            except FencedError:
                raise StoppedError from None
            kubelets(self.server)
            again = self.keeper.next_retry_at()
            if written and self.server.version == before and (again is None or again > self.server.now):
                return
        raise AssertionError("it never comes to rest")

    def broken(self) -> list[str]:
        return [str(one) for one in check_invariants(self.model.world, self.model.book.replay)]


def kubelets(server: Server) -> None:
    """Every pod runs at once, where there are enough GPUs: the kubelet counts."""
    used: dict[str, int] = {}
    for pod in server.all(PODS):
        if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            continue
        node = pod["spec"].get("nodeName", "nv-a-00")  # where the scheduler would put it
        asks = pod["spec"]["containers"][0].get("resources", {}).get("requests", {})
        used[node] = used.get(node, 0) + int(asks.get("nvidia.com/gpu", 0))
        assert used[node] <= 8, f"{pod['metadata']['name']}: {node} has only 8 GPUs"
        if "status" not in pod:
            path = PODS.path(pod["metadata"]["namespace"], pod["metadata"]["name"])
            server.change(path, {"status": {"phase": "Running"}}, "status", merge=True)
