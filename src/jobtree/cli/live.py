"""A live cluster as the command line sees it: with the user's own credentials, and a snapshot to think on.

Reading verbs load a snapshot of the cluster into the same embedded cluster that a state file fills. What
they print is what the manager has written; only ``plan`` lets the embedded planner go on from there.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jobtree.api.documents import Document, read_documents
from jobtree.api.policy import SIM_API_VERSION, Policy, is_sim_document, parse_policy
from jobtree.api.problems import InputError
from jobtree.cli.errors import CommandError, Exit
from jobtree.cli.settings import Settings
from jobtree.kube import requests
from jobtree.kube.access import NO_CLUSTER, Access, find_access
from jobtree.kube.client import Client
from jobtree.kube.errors import FORBIDDEN, NOT_FOUND, UNAUTHORIZED, KubeError, StatusError
from jobtree.kube.plain_http import PlainTransport
from jobtree.kube.requests import Selector
from jobtree.kube.resources import BUDGETS, CONFIG_MAPS, LEASES, NODES, PODS, RESERVATIONS, RUNS
from jobtree.sim.cluster import Cluster

SIMULATE = (
    "To work on a simulated cluster name a state file: --state FILE, or export JOBTREE_STATE=FILE. "
    "'kubectl runs init cluster.yaml' writes one to start from."
)
SYSTEM = "jobtree-system"
POLICY, POLICY_KEY = "jobtree-policy", "policy.yaml"
SNAPSHOT = (NODES, PODS, BUDGETS, RUNS, RESERVATIONS, LEASES)
ALIVE = Selector(fields="status.phase!=Succeeded,status.phase!=Failed")  # pods that use up their node


class Live:
    """One cluster, as one user."""

    def __init__(self, settings: Settings) -> None:
        access = find_cluster(settings)
        self.transport = PlainTransport(access)
        self.client = Client(self.transport)
        self.namespace = settings.namespace or access.namespace

    def ask(self, request: requests.Request) -> dict[str, Any]:
        with told():
            return self.client.ask(request)

    def bodies(self) -> list[dict[str, Any]]:
        """Everything that planning depends on, as documents; the policy first."""
        found = [self.policy_document()]
        with told():
            for resource in SNAPSHOT:
                found += self.client.list(resource, ALIVE if resource is PODS else requests.EVERYTHING)
        return found

    def policy_document(self) -> dict[str, Any]:
        """The administrator's policy; the defaults where there is none, or it may not be read."""
        default: dict[str, Any] = {"apiVersion": SIM_API_VERSION, "kind": "Policy", "spec": {}}
        try:
            written = self.client.ask(requests.get(CONFIG_MAPS, POLICY, SYSTEM))
        except StatusError as refused:
            if refused.code in (FORBIDDEN, NOT_FOUND):
                return default
            raise
        where = f"ConfigMap {SYSTEM}/{POLICY}, {POLICY_KEY}"
        spec = [one.body for one in read_documents(written.get("data", {}).get(POLICY_KEY, ""), where)]
        return {**default, "spec": spec[0] if spec else {}}

    def cluster(self, *, plan: bool, checked: bool = False) -> Cluster:
        """The snapshot, loaded; with ``plan``, planned on from where the manager is."""
        policy, documents = Policy(), []
        for body in self.bodies():
            if is_sim_document(body):
                policy = parse_policy(body, "the cluster's policy")
            else:
                documents.append(Document("the cluster", body))
        cluster = Cluster(time.time_ns() // 1_000_000, policy, checked=checked)
        cluster.load(documents, settle=plan)
        return cluster


def find_cluster(settings: Settings) -> Access:
    """As kubectl finds its cluster; where there is none, how to do without."""
    try:
        return find_access(settings.context or "", settings.kubeconfig or "")
    except InputError as broken:
        if NO_CLUSTER not in str(broken):
            raise
        raise CommandError(Exit.USAGE, f"{NO_CLUSTER}.\n  {SIMULATE}") from None


@contextmanager
def told() -> Iterator[None]:
    """What keeps a cluster from answering, as exit codes and what to do about it."""
    try:
        yield
    except StatusError as refused:
        raise CommandError(exit_code(refused), sentence(refused)) from None
    except KubeError as broken:
        raise CommandError(Exit.IO, f"the cluster does not answer: {broken}") from None


def exit_code(refused: StatusError) -> Exit:
    if refused.code == NOT_FOUND:
        return Exit.NOT_FOUND
    if refused.is_conflict or refused.exists_already:
        return Exit.CONFLICT
    return Exit.USAGE if refused.code < 500 else Exit.IO  # noqa: PLR2004  as HTTP counts


def sentence(refused: StatusError) -> str:
    hints = {
        UNAUTHORIZED: "the cluster does not know you: log in again, or choose another --context",
        FORBIDDEN: "ask an administrator for the ClusterRole jobtree-planner (to read and plan), or for the "
        "right to do this in your namespace",
    }
    if "could not find the requested resource" in refused.message:
        hints[NOT_FOUND] = "Jobtree is not installed on this cluster: an administrator can do so"
    elif refused.code == NOT_FOUND:
        hints[NOT_FOUND] = "'kubectl runs state --all' lists all Runs of the cluster"
    causes = [f"  {cause.field}: {cause.message}" for cause in refused.causes if cause.field]
    hint = hints.get(refused.code)
    return "\n".join([refused.message, *causes, *([f"  {hint}"] if hint else [])])
