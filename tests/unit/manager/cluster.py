"""An API server in memory, with fake kubelets, and a manager that talks to nothing else.

Time passes only when a test says so. A manager can be stopped dead after any of its writes; a new one then
begins from what the server holds. Everything of the manager runs but its sockets.
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
    resource.plural: resource for resource in (BUDGETS, CONFIG_MAPS, LEASES, NODES, PODS, RESERVATIONS, RUNS)
}
KEY = bytes(range(32))
RUNNER = asyncio.Runner()  # one event loop for all managers of the tests: what one began may go on


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
            self.objects[path] = new
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


class RecordingLog(Log):
    """Keeps every line: the part that writes it, and its fields."""

    def __init__(self) -> None:
        super().__init__(Silent())  # type: ignore[arg-type]
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def say(self, part: str, message: object, **details: object) -> None:
        self.lines.append((part, {"message": message, **details}))
        super().say(part, message, **details)


async def run_inline(work: Callable[[], Any]) -> Any:  # noqa: ANN401  whatever the work returns
    return work()


async def no_sleep(_: float) -> None:
    await asyncio.sleep(0)


class Manager:
    """One life of the manager: its own control loop, driven turn by turn."""

    def __init__(self, server: Server, stop_after: int = 0, archive: ArchiveDirectory | None = None) -> None:
        self.server = server
        self.gate = Gate(lambda: not self.dead, self._after_write)
        self._stop_after = stop_after
        self.dead = False
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
            runtime=LoopRuntime(lambda: server.now, run_inline, no_sleep),
        )
        self._list()
        server.watchers = [lambda path, body, there: self._watch(path, body, there=there)]
        RUNNER.run(self.loop.start())

    def _wake(self) -> None:
        self.loop.woken.set()

    def _list(self) -> None:
        stores = [store for store, _ in self.view.by_resource().values()]
        for store in stores:
            store.restart()
        for path, body in self.server.objects.items():
            self._watch(path, body, there=True)
        for store in stores:
            store.finish()

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

    async def _turn(self) -> None:
        try:
            await self.loop.turn()
            await self.loop.drain()
        except FencedError:
            raise StoppedError from None
        if self.dead:  # a pod or an Event was the last write
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
        raise AssertionError("it never comes to rest")

    def _is_due(self) -> bool:
        retry_at = self.loop._pod_reconciler.next_retry_at()
        return self.loop.woken.is_set() or (retry_at is not None and retry_at <= self.server.now)

    @property
    def lines(self) -> list[tuple[str, dict[str, Any]]]:
        """Lines of the log about decisions: the part that decided, and the fields."""
        return [(part, line) for part, line in self.log.lines if "cause" in line or "lease" in line]

    @property
    def violations(self) -> list[str]:
        broken = [line for _, line in self.log.lines if line["message"] == "an invariant is broken"]
        return [f"{line['invariant']}: {line['why']}" for line in broken]

    def logged(self, message: str) -> list[object]:
        """The leases that lines with this message are about."""
        return [line.get("lease") for _, line in self.log.lines if message in str(line["message"])]

    def broken(self) -> list[str]:
        return [str(one) for one in check_invariants(self.model.world, self.model.lease_objects.replay)]


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
