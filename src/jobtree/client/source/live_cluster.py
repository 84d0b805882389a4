"""Opens a live cluster with the user's own credentials.

A snapshot is loaded into a cluster held in memory, as a state file is. It has what the manager has written;
only the plan for a Run that does not exist yet plans on from there. Pods, the most numerous objects, are
listed only where the number of free GPUs matters.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from jobtree.api.documents.document_stream import Document
from jobtree.api.kinds.policy import SIM_API_VERSION, Policy, is_sim_document, parse_policy
from jobtree.api.schema.problems import InputError
from jobtree.api.schema.quantities import parse_time
from jobtree.client.errors import ArgumentError
from jobtree.client.source.server_refusals import translated_errors
from jobtree.kube.auth.cluster_access import NO_CLUSTER, Access, find_access
from jobtree.kube.http import api_requests
from jobtree.kube.http.api_errors import FORBIDDEN, NOT_FOUND, StatusError
from jobtree.kube.http.api_requests import Selector
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
from jobtree.kube.http.blocking_client import Client
from jobtree.kube.http.blocking_transport import PlainTransport
from jobtree.kube.installation import NAMESPACE, POLICY_NAME, policy_spec
from jobtree.snapshot.cluster import Cluster

SIMULATE = (
    "To work on a simulated cluster, name a state file: --state FILE, or export JOBTREE_STATE=FILE. "
    "'kubectl runs init cluster.yaml' writes one to start from."
)
RECORDS = (NODES, BUDGETS, RUNS, RESERVATIONS, LEASES)
TRIES = 3  # lists are not from one instant: if they do not match, they are requested again
ALIVE = Selector(fields="status.phase!=Succeeded,status.phase!=Failed")  # pods that use GPUs of their node


class ClusterName(NamedTuple):
    """The cluster of a kubeconfig. What is empty is chosen as kubectl chooses it."""

    context: str = ""
    kubeconfig: str = ""
    namespace: str = ""

    def access(self) -> Access:
        """Finds the cluster as kubectl does; the error for no cluster explains the simulation."""
        try:
            return find_access(self.context, self.kubeconfig)
        except InputError as error:
            if NO_CLUSTER not in str(error):
                raise
            raise ArgumentError(f"{NO_CLUSTER}.\n  {SIMULATE}") from None

    def default_namespace(self) -> str:
        """Returns the namespace of names without one: the named one, else that of the context."""
        return self.namespace or self.access().namespace


class Live:
    """A live cluster, with the rights of one user."""

    def __init__(self, name: ClusterName, on_warning: Callable[[str], None]) -> None:
        access = name.access()
        self.transport = PlainTransport(access, on_warning=on_warning)
        self.client = Client(self.transport)
        self.namespace = name.namespace or access.namespace

    def ask(self, request: api_requests.Request) -> dict[str, Any]:
        with translated_errors():
            return self.client.ask(request)

    def bodies(self, *, pods: bool = True) -> list[dict[str, Any]]:
        """Returns all objects that planning depends on, as documents; the policy first."""
        for _ in range(TRIES):
            bodies = self.listed(*RECORDS, pods=pods)
            dangling = dangling_leases(bodies)
            if not dangling:
                break
        return [self.policy_document(), *(body for body in bodies if id(body) not in dangling)]

    def listed(self, *resources: Resource, pods: bool = False) -> list[dict[str, Any]]:
        with translated_errors():
            bodies = self.client.list(PODS, ALIVE) if pods else []
            for resource in resources:
                bodies += self.client.list(resource)
        return bodies

    def policy_document(self) -> dict[str, Any]:
        """Returns the administrator's policy; the defaults if there is none or the user may not read it."""
        default: dict[str, Any] = {"apiVersion": SIM_API_VERSION, "kind": "Policy", "spec": {}}
        with translated_errors():
            try:
                config_map = self.client.ask(api_requests.get(CONFIG_MAPS, POLICY_NAME, NAMESPACE))
            except StatusError as refused:
                if refused.code in (FORBIDDEN, NOT_FOUND):
                    return default
                raise
        return {**default, "spec": policy_spec(config_map.get("data", {}), NAMESPACE)[0]}

    def cluster(self, *, plan: bool, pods: bool = True, checked: bool = False) -> Cluster:
        """Returns the snapshot, loaded; with ``plan``, also planned as the manager would do next."""
        policy, documents = Policy(), []
        for body in self.bodies(pods=pods):
            if is_sim_document(body):
                policy = parse_policy(body, "the cluster's policy")
            else:
                documents.append(Document("the cluster", body))
        now = max(present(), latest_lease_instant(document.body for document in documents))
        cluster = Cluster(now, policy, checked=checked)
        cluster.load(documents, settle=plan)
        return cluster


def present() -> int:
    """Returns what the system clock shows, in ms since the epoch."""
    return time.time_ns() // 1_000_000


def latest_lease_instant(bodies: Iterable[dict[str, Any]]) -> int:
    """Returns the latest instant at which a lease began or ended: planning goes on from there, in ms."""
    leases = [body for body in bodies if body.get("kind") == "Lease"]
    texts = {lease["spec"].get("start") for lease in leases}
    texts |= {(lease.get("status") or {}).get("end") for lease in leases}
    return max((parse_time(text) for text in texts if isinstance(text, str)), default=0)


def dangling_leases(bodies: list[dict[str, Any]]) -> set[int]:
    """Returns the ids of open leases whose Run or node is not listed: it changed between two lists."""
    runs, nodes = set(), set()
    for body in bodies:
        if body["kind"] == "Run":
            runs.add((body["metadata"]["namespace"], body["metadata"]["name"]))
        elif body["kind"] == "Node":
            nodes.add(body["metadata"]["name"])
    return {
        id(body)
        for body in bodies
        if body["kind"] == "Lease"
        and "end" not in body.get("status", {})
        and not is_complete(body, runs, nodes)
    }


def is_complete(lease: dict[str, Any], runs: set[tuple[str, str]], nodes: set[str]) -> bool:
    """Whether the Run and all nodes of a lease are listed."""
    run, slots = lease["spec"]["runRef"], lease["spec"]["slots"]
    return (run["namespace"], run["name"]) in runs and all(slot.partition("#")[0] in nodes for slot in slots)
