"""The cluster that is measured: etcd, an API server, kwok's nodes, and the manager as it is installed.

Nothing else runs: what the controllers of a whole cluster write about pods would be added to both sides of
every comparison, and to the noise. Namespaces get their account from here. The API server has the gates of
Kubernetes' own gang scheduling open, so that both kinds of gangs are made on one server in one run.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.live.client import LIST_SECONDS, POLL_SECONDS, Client, Document, connect
from benchmarks.live.usage import Usage, usage_of
from jobtree.client.source.live_runs import with_finalizer
from jobtree.kube.http import api_requests
from jobtree.kube.http.api_resources import (
    BUDGETS,
    EVENTS,
    LEASES,
    NODES,
    PODS,
    RESERVATIONS,
    RUNS,
    SERVICES,
    Resource,
)
from tests.live.cluster.api_server_flags import ADMIN_GROUP
from tests.live.cluster.control_plane import ControlPlane
from tests.live.crds.manifests import API_VERSION, FLAVOR
from tests.live.manager.installation import install
from tests.live.manager.manager_process import Manager
from tests.live.nodes.fake_fleet import FakeFleet

GATES = "GenericWorkload=true,GangScheduling=true"
API_SERVER_FLAGS = {"feature-gates": GATES, "runtime-config": "scheduling.k8s.io/v1alpha2=true"}
BREAK_GLASS = "jobtree:break-glass"  # raw pods look like Jobtree's, and must not be refused for it
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True)
RACK_NODES = 256
GPUS = 8
START_SECONDS = 600.0
CLEAN_SECONDS = 300.0
REST_SECONDS = 0.5
REST_SHARE = 0.2  # of a core: heartbeats of thousands of nodes never end
READ = "the cluster is read"
MANAGER = "jobtree.manager"


class Cluster:
    """A cluster; ``client`` is an administrator, ``account`` has the rights of the manager."""

    def __init__(
        self, plane: ControlPlane, fleet: FakeFleet, client: Client, account: Client, manager_kubeconfig: Path
    ) -> None:
        self.plane = plane
        self.client = client
        self.account = account
        self.nodes: list[str] = []
        self._fleet = fleet
        self._kubeconfig = manager_kubeconfig
        self._leading: Manager | None = None
        self._teams = 0
        self._namespaces = 0

    # What there is

    async def add_nodes(self, count: int, rack_nodes: int = RACK_NODES) -> None:
        """Adds nodes of 8 GPUs in racks, and waits until they are ready."""
        for rack, first in enumerate(range(0, count, rack_nodes)):
            domain = f"r/c/rack-{rack:02}"
            self.nodes += self._fleet.add_nodes(domain, min(rack_nodes, count - first), gpus=GPUS)

        async def ready() -> bool:
            found = await self.client.items(NODES)
            return sum(is_ready(node) for node in found) >= count

        await self.client.until(
            ready, f"{count} nodes are ready", START_SECONDS, min(LIST_SECONDS, count / 1000)
        )

    async def add_team(self, gpus: int) -> str:
        """Adds a team with a Budget; returns its owner."""
        self._teams += 1
        owner = f"bench:team{self._teams}"
        spec = {
            "owner": owner,
            "envelopes": [{"name": "main", "flavor": FLAVOR, "concurrency": gpus}],
        }
        await self.client.write(api_requests.create(BUDGETS, kind("Budget", f"team{self._teams}", spec=spec)))
        return owner

    async def add_namespace(self) -> str:
        """Adds a namespace in which pods can be created."""
        self._namespaces += 1
        name = f"bench{self._namespaces}"
        await self.client.write(api_requests.create(NAMESPACES, document(NAMESPACES, name)))
        await self.client.write(api_requests.create(ACCOUNTS, document(ACCOUNTS, "default", name)))
        return name

    # The manager

    @asynccontextmanager
    async def managed(self, module: str = MANAGER) -> AsyncIterator[Manager]:
        """Runs a manager that leads."""
        with self.start_manager(module) as manager:
            await self.leads(manager)
            self._leading = manager
            try:
                yield manager
            finally:
                self._leading = None

    def start_manager(self, module: str = MANAGER) -> Manager:
        return Manager(self.plane, self._kubeconfig, "--check-seconds=30", module=module)

    async def leads(self, manager: Manager, within: float = START_SECONDS) -> None:
        """Waits until this manager has read the cluster and leads."""

        async def read() -> bool:
            assert not manager.has_ended, manager.log.read_text()
            return manager.has_logged(READ)

        await self.client.until(read, "the manager leads", within)

    async def until(
        self, condition: Callable[[], Awaitable[bool]], what: str, within: float, every: float = POLL_SECONDS
    ) -> None:
        """Waits like the client, but fails at once if the manager has ended."""

        async def holds() -> bool:
            ended = self._leading is not None and self._leading.has_ended
            assert not ended, f"the manager has ended, still not: {what}"
            return await condition()

        await self.client.until(holds, what, within, every)

    # Cleaning

    async def clean(self, namespace: str) -> None:
        """Deletes all Runs of a namespace while a manager leads, then the objects that remain."""
        await self.client.clear(RUNS, namespace)
        await self.until(lambda: self._none(RUNS, namespace), "the Runs are gone", CLEAN_SECONDS)
        await self.sweep(namespace)

    async def sweep(self, namespace: str) -> None:
        """Deletes the objects that a garbage collector would delete."""
        for resource in (PODS, EVENTS, SERVICES, RESERVATIONS):
            await self.client.clear(resource, namespace)
        await self.until(lambda: self._none(PODS, namespace), "the pods are gone", CLEAN_SECONDS)

    async def forget_leases(self) -> None:
        await self.client.clear(LEASES)
        await self.until(lambda: self._none(LEASES), "the leases are gone", CLEAN_SECONDS)

    async def _none(self, resource: Resource, namespace: str = "") -> bool:
        return await self.client.count(resource, namespace) == 0

    # Usage

    async def rest(self) -> None:
        """Waits until the server is idle, because nodes react to pods for some seconds."""

        async def idle() -> bool:
            before = self.server_usage()
            await asyncio.sleep(REST_SECONDS)
            return self.server_usage().since(before) < REST_SECONDS * REST_SHARE

        await self.until(idle, "the server is at rest", CLEAN_SECONDS)

    def server_usage(self) -> Usage:
        """Returns the CPU use of the API server and etcd together."""
        used = [
            usage_of(server.pid) for server in self.plane.servers if server.name in ("etcd", "kube-apiserver")
        ]
        return Usage(sum(usage.cpu_seconds for usage in used), sum(usage.resident_mib for usage in used), 0.0)


def run_manifest(name: str, namespace: str, owner: str, gpus: int, **fields: Any) -> Document:  # noqa: ANN401
    """Returns a Run as ``kubectl runs submit`` sends it."""
    resources = {"gpuType": FLAVOR, "totalGPUs": gpus, **fields.pop("resources", {})}
    return with_finalizer(
        kind("Run", name, namespace, spec={"owner": owner, "resources": resources, **fields})
    )


def kind(name: str, title: str, namespace: str = "", **parts: object) -> Document:
    metadata = {"name": title, "namespace": namespace} if namespace else {"name": title}
    return {"apiVersion": API_VERSION, "kind": name, "metadata": metadata, **parts}


def document(resource: Resource, name: str, namespace: str = "", **parts: object) -> Document:
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **parts}


def is_ready(node: Document) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


@asynccontextmanager
async def cluster(nodes: int, rack_nodes: int = RACK_NODES) -> AsyncIterator[Cluster]:
    """Starts a new cluster with these nodes and no manager."""
    begun = time.monotonic()
    with ControlPlane(API_SERVER_FLAGS) as plane:
        manager_kubeconfig = install(plane)
        admin = plane.kubeconfig("bench", ADMIN_GROUP, BREAK_GLASS)
        async with connect(admin) as client, connect(manager_kubeconfig) as account:
            made = Cluster(plane, plane.start_fake_fleet(), client, account, manager_kubeconfig)
            await made.add_nodes(nodes, rack_nodes)
            print(f"  {nodes:,} nodes are ready after {time.monotonic() - begun:.0f} s", flush=True)
            yield made
