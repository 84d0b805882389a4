"""Lists the pods of a Run on a live cluster, and prints their logs."""

from typing import Any

import click

from jobtree.cli.shell.command_errors import CommandError, Exit
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.shell.table import Column, print_table
from jobtree.cli.source.live_cluster import Live
from jobtree.cli.source.server_refusals import translated_errors
from jobtree.cli.tasks.live_writes import find
from jobtree.kube.http import api_requests
from jobtree.kube.http.api_errors import StatusError
from jobtree.kube.http.api_requests import Preconditions, Selector
from jobtree.kube.http.api_resources import PODS
from jobtree.kube.installation import ATTEMPT_LABEL, GROUP_LABEL, RANK_LABEL, ROLE_LABEL, UID_LABEL

COLUMNS = (
    Column("POD"),
    Column("RANK", right=True),
    Column("GROUP", right=True),
    Column("ATTEMPT", right=True, rank=2),
    Column("ROLE", rank=1),
    Column("PHASE"),
    Column("NODE", rank=1),
    Column("REASON", rank=2),
)

ObjectBody = dict[str, Any]


class RunPods:
    """The pods of a Run, lowest rank first and standby pods last; found by their owner reference."""

    def __init__(self, settings: CommandOptions, run: str) -> None:
        if not settings.live:
            raise CommandError(
                Exit.USAGE, "a simulated cluster has no pods: leave out --state and JOBTREE_STATE"
            )
        self.live = Live(settings)
        self.run = find(self.live, run)
        metadata = self.run["metadata"]
        selector = Selector(metadata["namespace"], labels=f"{UID_LABEL}={metadata['uid']}")
        with translated_errors():
            labelled = self.live.client.list(PODS, selector)
        self.pods = sorted(
            filter(self._is_owned, labelled), key=lambda pod: (self._order(pod), pod["metadata"]["name"])
        )

    def _is_owned(self, pod: ObjectBody) -> bool:
        owners = pod["metadata"].get("ownerReferences", ())
        return any(owner["uid"] == self.run["metadata"]["uid"] for owner in owners)

    @staticmethod
    def _order(pod: ObjectBody) -> tuple[int, int]:
        rank = pod_label(pod, RANK_LABEL)
        return (0, int(rank)) if rank.isdecimal() else (1, 0)

    def of_rank(self, rank: int) -> ObjectBody:
        pods = [pod for pod in self.pods if pod_label(pod, RANK_LABEL) == str(rank)]
        if not pods:
            raise CommandError(Exit.NOT_FOUND, f"{self._name()} has no pod of rank {rank}{self._rank_hint()}")
        return max(pods, key=lambda pod: int(pod_label(pod, ATTEMPT_LABEL) or 0))

    def of_group(self, group: int) -> list[ObjectBody]:
        pods = [
            pod
            for pod in self.pods
            if pod_label(pod, GROUP_LABEL) == str(group) and pod_label(pod, RANK_LABEL)
        ]
        if not pods:
            raise CommandError(
                Exit.NOT_FOUND, f"{self._name()} has no pods in group {group}{self._rank_hint()}"
            )
        return pods

    def _name(self) -> str:
        return f"{self.run['metadata']['namespace']}/{self.run['metadata']['name']}"

    def _rank_hint(self) -> str:
        ranks = [int(rank) for pod in self.pods if (rank := pod_label(pod, RANK_LABEL)).isdecimal()]
        if not ranks:
            return f": it is {self.run.get('status', {}).get('phase', 'Pending')} and has no pods now"
        return f": its ranks are {min(ranks)} to {max(ranks)}"


def pod_label(pod: ObjectBody, name: str) -> str:
    text: str = pod["metadata"].get("labels", {}).get(name, "")
    return text


def print_pods(settings: CommandOptions, run_pods: RunPods) -> None:
    if run_pods.pods:
        print_table(settings, COLUMNS, [pod_row(pod) for pod in run_pods.pods])
    else:
        click.echo("no pods")


def pod_row(pod: ObjectBody) -> list[str]:
    status = pod.get("status", {})
    terminating = "Terminating" if "deletionTimestamp" in pod["metadata"] else ""
    return [
        pod["metadata"]["name"],
        pod_label(pod, RANK_LABEL),
        pod_label(pod, GROUP_LABEL),
        pod_label(pod, ATTEMPT_LABEL),
        pod_label(pod, ROLE_LABEL),
        terminating or status.get("phase", ""),
        pod["spec"].get("nodeName", ""),
        status.get("reason") or container_reason(status),
    ]


def container_reason(status: dict[str, Any]) -> str:
    """Returns why its containers do not run, such as an image that cannot be pulled; else empty."""
    states = [container.get("state", {}) for container in status.get("containerStatuses", ())]
    reasons = [
        state[kind].get("reason", "")
        for state in states
        for kind in ("waiting", "terminated")
        if kind in state
    ]
    return next((reason for reason in reasons if reason), "")


def print_logs(run_pods: RunPods, pods: list[ObjectBody], container: str, *, follow: bool) -> None:
    """Prints log lines as they arrive; with several pods, each line starts with its rank."""
    for pod in pods:
        metadata = pod["metadata"]
        pod_key = Preconditions(metadata["name"], metadata["namespace"])
        prefix = f"[{pod_label(pod, RANK_LABEL)}] " if len(pods) > 1 else ""
        with translated_errors():
            try:
                for line in run_pods.live.client.lines(
                    api_requests.pod_log(pod_key, container, follow=follow)
                ):
                    click.echo(f"{prefix}{line}")
            except StatusError as refused:
                if not refused.is_passing:
                    raise
                raise CommandError(Exit.IO, log_error(pod, refused)) from None


def log_error(pod: ObjectBody, refused: StatusError) -> str:
    """Returns the message for a failed log request; the API server reads logs from the node."""
    name, node = pod["metadata"]["name"], pod["spec"].get("nodeName", "")
    hint = f"is its node up? check 'kubectl get node {node}'" if node else "it is not on a node yet"
    return f"cannot read the logs of {name}: {refused.message}\n  {hint}"
