"""A live cluster as the command line sees it: with the user's own credentials, and a snapshot to think on.

Reading verbs load a snapshot of the cluster into the same embedded cluster that a state file fills. What
they print is what the manager has written; only ``plan -f`` lets the embedded planner go on from there.
Pods, of which a cluster has the most, are listed only where free GPUs count.
"""

import time
from typing import Any

import click

from jobtree.api.documents.document_stream import Document
from jobtree.api.kinds.policy import SIM_API_VERSION, Policy, is_sim_document, parse_policy
from jobtree.api.schema.problems import InputError
from jobtree.cli.shell.command_errors import CommandError, Exit
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.source.server_refusals import translated_errors
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
from jobtree.kube.installation import NAMESPACE, POLICY_NAME, policy_written
from jobtree.snapshot.cluster import Cluster

SIMULATE = (
    "To work on a simulated cluster name a state file: --state FILE, or export JOBTREE_STATE=FILE. "
    "'kubectl runs init cluster.yaml' writes one to start from."
)
RECORDS = (NODES, BUDGETS, RUNS, RESERVATIONS, LEASES)
TRIES = 3  # listings are not of one instant: what does not go together is asked for again
ALIVE = Selector(fields="status.phase!=Succeeded,status.phase!=Failed")  # pods that use up their node


def warn(text: str) -> None:
    click.echo(f"warning: {text}", err=True)


class Live:
    """One cluster, as one user."""

    def __init__(self, settings: CommandOptions) -> None:
        access = find_cluster(settings)
        self.transport = PlainTransport(access, warned=warn)
        if command := click.get_current_context(silent=True):
            command.call_on_close(self.transport.close)
        self.client = Client(self.transport)
        self.namespace = settings.namespace or access.namespace

    def ask(self, request: api_requests.Request) -> dict[str, Any]:
        with translated_errors():
            return self.client.ask(request)

    def bodies(self, *, pods: bool = True) -> list[dict[str, Any]]:
        """Everything that planning depends on, as documents; the policy first."""
        for _ in range(TRIES):
            found = self.listed(*RECORDS, pods=pods)
            lost = dangling_leases(found)
            if not lost:
                break
        return [self.policy_document(), *(body for body in found if id(body) not in lost)]

    def listed(self, *resources: Resource, pods: bool = False) -> list[dict[str, Any]]:
        with translated_errors():
            found = self.client.list(PODS, ALIVE) if pods else []
            for resource in resources:
                found += self.client.list(resource)
        return found

    def policy_document(self) -> dict[str, Any]:
        """The administrator's policy; the defaults where there is none, or it may not be read."""
        default: dict[str, Any] = {"apiVersion": SIM_API_VERSION, "kind": "Policy", "spec": {}}
        with translated_errors():
            try:
                written = self.client.ask(api_requests.get(CONFIG_MAPS, POLICY_NAME, NAMESPACE))
            except StatusError as refused:
                if refused.code in (FORBIDDEN, NOT_FOUND):
                    return default
                raise
        return {**default, "spec": policy_written(written.get("data", {}), NAMESPACE)[0]}

    def cluster(self, *, plan: bool, pods: bool = True, checked: bool = False) -> Cluster:
        """The snapshot, loaded; with ``plan``, planned on from where the manager is."""
        policy, documents = Policy(), []
        for body in self.bodies(pods=pods):
            if is_sim_document(body):
                policy = parse_policy(body, "the cluster's policy")
            else:
                documents.append(Document("the cluster", body))
        cluster = Cluster(time.time_ns() // 1_000_000, policy, checked=checked)
        cluster.load(documents, settle=plan)
        return cluster


def default_namespace(settings: CommandOptions) -> str:
    """The namespace that a name means without one: as kubectl has it, the context's."""
    return settings.namespace or find_cluster(settings).namespace


def find_cluster(settings: CommandOptions) -> Access:
    """As kubectl finds its cluster; where there is none, how to do without."""
    try:
        return find_access(settings.context or "", settings.kubeconfig or "")
    except InputError as broken:
        if NO_CLUSTER not in str(broken):
            raise
        raise CommandError(Exit.USAGE, f"{NO_CLUSTER}.\n  {SIMULATE}") from None


def dangling_leases(bodies: list[dict[str, Any]]) -> set[int]:
    """Open leases whose Run or node was not listed: it came or went while the listing was made."""
    runs, nodes = set(), set()
    for body in bodies:
        if body["kind"] == "Run":
            runs.add((body["metadata"]["namespace"], body["metadata"]["name"]))
        elif body["kind"] == "Node":
            nodes.add(body["metadata"]["name"])
    return {
        id(body)
        for body in bodies
        if body["kind"] == "Lease" and "end" not in body.get("status", {}) and not held(body, runs, nodes)
    }


def held(lease: dict[str, Any], runs: set[tuple[str, str]], nodes: set[str]) -> bool:
    run, slots = lease["spec"]["runRef"], lease["spec"]["slots"]
    return (run["namespace"], run["name"]) in runs and all(slot.partition("#")[0] in nodes for slot in slots)
