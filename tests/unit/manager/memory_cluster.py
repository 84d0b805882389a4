"""An API server in memory, with fake kubelets, and a manager that is connected to it.

Time passes only when a test sets it. A manager can be killed after any of its writes; a new manager then
starts from the objects of the server. All parts of the manager run, except for its sockets.
"""

import asyncio
import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import UUID

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
    SERVICES,
    Resource,
)
from jobtree.kube.write.object_writer import Writer
from jobtree.kube.write.write_gate import Gate
from jobtree.manager.cluster_view import ClusterView
from jobtree.manager.controllers.lease_archiver import ArchiveSettings
from jobtree.manager.log import Log
from jobtree.manager.metrics import Metrics
from jobtree.manager.planner.planning_model import PlanningModel
from jobtree.manager.process.control_loop import ControlLoop, LoopRuntime
from jobtree.manager.process.health import Health
from tests.unit.core.build import T0

Body = dict[str, Any]
WATCHED = {
    resource.plural: resource
    for resource in (BUDGETS, CONFIG_MAPS, LEASES, NODES, PODS, RESERVATIONS, RUNS, SERVICES)
}
KEY = bytes(range(32))
RUNNER = asyncio.Runner()  # one event loop for all managers, since tasks of a killed one may still run


class StoppedError(BaseException):
    """The process of the manager was killed."""


class Fault(NamedTuple):
    """The fault of one write; ``number`` counts writes from 1."""

    number: int
    error: KubeError
    after: bool = False  # whether the write takes effect before the error


class NullStream:
    def write(self, _: str) -> int:
        return 0

    def flush(self) -> None:
        return


class Server:
    """An API server with versions, preconditions, finalizers, status and garbage collection."""

    def __init__(self) -> None:
        self.objects: dict[str, Body] = {}
        self.version = 0
        self.created: dict[str, int] = {}  # how often an object was created at each path
        self.now = T0  # what all system clocks show
        self.jumped = 0  # by how much they were set forward, in ms
        self.watchers: list[Callable[[str, Body, bool], None]] = []
        self.writes = 0  # requested writes
        self.fault: Fault | None = None
        self.refusing_nodes: set[str] = set()  # whose kubelets refuse every new pod
        self.refused: dict[str, StatusError] = {}  # by kind, the error of every creation
        self.refused_objects: dict[
            str, StatusError
        ] = {}  # by path, the error of its creation and of every change

    def set_clock(self, milliseconds: int) -> None:
        """Sets all system clocks forward, or back; no time passes."""
        self.now += milliseconds
        self.jumped += milliseconds

    async def send(self, request: Request) -> bytes:
        """Answers a request, or raises the fault before or after its write takes effect."""
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
            self._raise_if_refused(f"{path}/{body['metadata']['name']}")
            return json.dumps(self.create(path, body)).encode()
        if request.method == "DELETE":
            return json.dumps(self.delete(path, body.get("preconditions", {}))).encode()
        self._raise_if_refused(path.removesuffix("/status"))
        subresource = path.rpartition("/")[2] if path.endswith("/status") else ""
        return json.dumps(
            self.change(
                path.removesuffix("/status"), body, subresource, merge=request.content_type == MERGE_PATCH
            )
        ).encode()

    def _raise_if_refused(self, path: str) -> None:
        if path in self.refused_objects:
            raise self.refused_objects[path]

    def find(self, path: str) -> Body:
        if path not in self.objects:
            raise StatusError(404, "NotFound", f"{path} does not exist")
        return self.objects[path]

    def create(self, collection: str, body: Body) -> Body:
        path = f"{collection}/{body['metadata']['name']}"
        if path in self.objects:
            raise StatusError(409, "AlreadyExists", f"{path} exists")
        count = self.created[path] = self.created.get(path, 0) + 1
        kept = {key: value for key, value in body.items() if key != "status" or self.is_core(path)}
        metadata = {
            **body["metadata"],
            "uid": str(UUID(bytes=sha256(f"{path} {count}".encode()).digest()[:16])),
            "creationTimestamp": format_time(self.now // 1000 * 1000),
            "generation": 1,
        }
        return self._put(path, {**kept, "metadata": metadata})

    def is_core(self, path: str) -> bool:
        return path.startswith("/api/")

    def change(self, path: str, body: Body, subresource: str, *, merge: bool) -> Body:
        old = self.find(path)
        metadata = body.get("metadata", {})
        for field in ("uid", "resourceVersion"):
            if metadata.get(field) not in (None, old["metadata"][field]):
                raise StatusError(409, "Conflict", f"{path} has another {field}")
        new = merged(old, body) if merge else {**old, **body, "metadata": {**old["metadata"], **metadata}}
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
            self.objects[path] = new
            return self._remove(path)
        return self._put(path, new)

    def _without_version(self, body: Body) -> Body:
        return {**body, "metadata": {**body["metadata"], "resourceVersion": ""}}

    def delete(self, path: str, preconditions: Body | None = None) -> Body:
        body = self.find(path)
        uid = (preconditions or {}).get("uid")
        if uid not in (None, body["metadata"]["uid"]):
            raise StatusError(409, "Conflict", f"{path} has another UID")
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

    # Reading

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


class RecordingLog(Log):
    """Keeps every line: the part that writes it, and its fields."""

    def __init__(self) -> None:
        super().__init__(NullStream())  # type: ignore[arg-type]
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def say(self, part: str, message: object, **details: object) -> None:
        self.lines.append((part, {"message": message, **details}))
        super().say(part, message, **details)


async def run_inline(work: Callable[[], Any]) -> Any:  # noqa: ANN401  any result
    return work()


async def no_sleep(_: float) -> None:
    await asyncio.sleep(0)


class Manager:
    """One process of the manager, whose control loop a test drives turn by turn."""

    def __init__(self, server: Server, stop_after: int = 0, archive: ArchiveDirectory | None = None) -> None:
        self.server = server
        self.gate = Gate(lambda: not self.is_dead, self._after_write)
        self._stop_after = stop_after
        self.is_dead = False
        self.view = ClusterView("jobtree-system", lambda *_: None, self._wake)
        self.metrics = Metrics()
        self.log = RecordingLog()
        self.model = PlanningModel(KEY, check_every_ms=0)
        self.loop = ControlLoop(
            self.model,
            self.view,
            Writer(server, self.gate, sleep=no_sleep),  # type: ignore[arg-type]
            Health(self.view, self.metrics),
            self.log,
            archive=ArchiveSettings(archive, 0) if archive else None,
            runtime=LoopRuntime(lambda: server.now, lambda: server.now - server.jumped, run_inline, no_sleep),
        )
        self._list()
        server.watchers = [lambda path, body, exists: self._watch(path, body, exists=exists)]
        RUNNER.run(self.loop.start())

    def _wake(self) -> None:
        self.loop.woken.set()

    def _list(self) -> None:
        stores = [store for store, _ in self.view.by_resource().values()]
        for store in stores:
            store.restart()
        for path, body in self.server.objects.items():
            self._watch(path, body, exists=True)
        for store in stores:
            store.finish()

    def _after_write(self, count: int) -> None:
        if self._stop_after and count >= self._stop_after:
            self.is_dead = True
            self.server.watchers = []
            raise StoppedError

    def _watch(self, path: str, body: Body, *, exists: bool) -> None:
        plural = path.split("/")[-2]
        if plural in WATCHED:
            store, _ = self.view.by_resource()[WATCHED[plural]]
            (store.upsert if exists else store.delete)(json.dumps(body).encode())

    async def _turn(self) -> None:
        try:
            await self.loop.turn()
            await self.loop.drain()
        except FencedError:
            raise StoppedError from None
        if self.is_dead:  # the last write was a pod or an Event
            raise StoppedError

    def turn(self) -> None:
        """Makes one turn, with all writes that it begins."""
        RUNNER.run(self._turn())

    def settle(self) -> None:
        """Makes turns, with a kubelet on each node, until nothing is written and nothing wakes the loop."""
        for _ in range(100):
            before = self.server.version, self.server.writes
            self.turn()
            kubelets(self.server)
            if (self.server.version, self.server.writes) == before and not self._is_due():
                return
        raise AssertionError("the manager still writes after 100 turns")

    def _is_due(self) -> bool:
        retries = (self.loop._pod_reconciler.next_retry_at(), self.loop._set_aside.next_retry_at())
        return self.loop.woken.is_set() or any(at is not None and at <= self.server.now for at in retries)

    @property
    def lines(self) -> list[tuple[str, dict[str, Any]]]:
        """Returns the log lines about decisions: the part that decided, and the fields."""
        return [(part, line) for part, line in self.log.lines if "cause" in line or "lease" in line]

    @property
    def violations(self) -> list[str]:
        lines = [line for _, line in self.log.lines if line["message"] == "an invariant is broken"]
        return [f"{line['invariant']}: {line['why']}" for line in lines]

    def logged(self, message: str) -> list[object]:
        """Returns the leases of the log lines with this message."""
        return [line.get("lease") for _, line in self.log.lines if message in str(line["message"])]

    def broken(self) -> list[str]:
        """Checks the invariants of the world now."""
        return [
            str(violation)
            for violation in check_invariants(self.model.world, self.model.lease_objects.replay)
        ]


def kubelets(server: Server) -> None:
    """Starts or refuses every new pod, and checks that no node has more than 8 GPUs in use."""
    used: dict[str, int] = {}
    for pod in server.all(PODS):
        if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            continue
        node = pod["spec"].get("nodeName", "nv-a-00")  # the scheduler would choose it
        requests = pod["spec"]["containers"][0].get("resources", {}).get("requests", {})
        used[node] = used.get(node, 0) + int(requests.get("nvidia.com/gpu", 0))
        assert used[node] <= 8, f"{pod['metadata']['name']}: {node} has only 8 GPUs"
        if "status" not in pod:
            path = PODS.path(pod["metadata"]["namespace"], pod["metadata"]["name"])
            rejected = {"phase": "Failed", "reason": "OutOfcpu", "message": "no cpu is left"}
            status = rejected if node in server.refusing_nodes else {"phase": "Running"}
            server.change(path, {"status": status}, "status", merge=True)
