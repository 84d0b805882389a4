"""The pods of a Run on a live cluster, found by their owner: labels are only what they are called."""

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
    """A Run's pods, lowest rank first; standby pods last."""

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
            found = self.live.client.list(PODS, selector)
        self.pods = sorted(
            filter(self._owned, found), key=lambda pod: (self._order(pod), pod["metadata"]["name"])
        )

    def _owned(self, pod: ObjectBody) -> bool:
        owners = pod["metadata"].get("ownerReferences", ())
        return any(owner["uid"] == self.run["metadata"]["uid"] for owner in owners)

    @staticmethod
    def _order(pod: ObjectBody) -> tuple[int, int]:
        rank = pod_label(pod, RANK_LABEL)
        return (0, int(rank)) if rank.isdecimal() else (1, 0)

    def of_rank(self, rank: int) -> ObjectBody:
        found = [pod for pod in self.pods if pod_label(pod, RANK_LABEL) == str(rank)]
        if not found:
            raise CommandError(Exit.NOT_FOUND, f"{self._name()} has no pod of rank {rank}{self._known()}")
        return max(found, key=lambda pod: int(pod_label(pod, ATTEMPT_LABEL) or 0))

    def of_group(self, group: int) -> list[ObjectBody]:
        found = [
            pod
            for pod in self.pods
            if pod_label(pod, GROUP_LABEL) == str(group) and pod_label(pod, RANK_LABEL)
        ]
        if not found:
            raise CommandError(Exit.NOT_FOUND, f"{self._name()} has no pods in group {group}{self._known()}")
        return found

    def _name(self) -> str:
        return f"{self.run['metadata']['namespace']}/{self.run['metadata']['name']}"

    def _known(self) -> str:
        ranks = [int(rank) for pod in self.pods if (rank := pod_label(pod, RANK_LABEL)).isdecimal()]
        if not ranks:
            return f": it is {self.run.get('status', {}).get('phase', 'Pending')} and has no pods now"
        return f": its ranks are {min(ranks)} to {max(ranks)}"


def pod_label(pod: ObjectBody, name: str) -> str:
    text: str = pod["metadata"].get("labels", {}).get(name, "")
    return text


def print_pods(settings: CommandOptions, crew: RunPods) -> None:
    if crew.pods:
        print_table(settings, COLUMNS, [pod_row(pod) for pod in crew.pods])
    else:
        click.echo("no pods")


def pod_row(pod: ObjectBody) -> list[str]:
    status = pod.get("status", {})
    leaving = "Terminating" if "deletionTimestamp" in pod["metadata"] else ""
    return [
        pod["metadata"]["name"],
        pod_label(pod, RANK_LABEL),
        pod_label(pod, GROUP_LABEL),
        pod_label(pod, ATTEMPT_LABEL),
        pod_label(pod, ROLE_LABEL),
        leaving or status.get("phase", ""),
        pod["spec"].get("nodeName", ""),
        status.get("reason") or waiting(status),
    ]


def waiting(status: dict[str, Any]) -> str:
    """Why its containers do not run: an image that cannot be pulled, for one."""
    states = [one.get("state", {}) for one in status.get("containerStatuses", ())]
    reasons = [
        state[kind].get("reason", "")
        for state in states
        for kind in ("waiting", "terminated")
        if kind in state
    ]
    return next((reason for reason in reasons if reason), "")


def print_logs(crew: RunPods, pods: list[ObjectBody], container: str, *, follow: bool) -> None:
    """Lines as they come; where several ranks are shown, each line says whose it is."""
    for pod in pods:
        metadata = pod["metadata"]
        seen = Preconditions(metadata["name"], metadata["namespace"])
        prefix = f"[{pod_label(pod, RANK_LABEL)}] " if len(pods) > 1 else ""
        with translated_errors():
            try:
                for line in crew.live.client.lines(api_requests.pod_log(seen, container, follow=follow)):
                    click.echo(f"{prefix}{line}")
            except StatusError as refused:
                if not refused.is_passing:
                    raise
                raise CommandError(Exit.IO, unserved(pod, refused)) from None


def unserved(pod: ObjectBody, refused: StatusError) -> str:
    """Logs lie on the node, and the server has to ask it for them."""
    name, node = pod["metadata"]["name"], pod["spec"].get("nodeName", "")
    hint = f"is its node up? 'kubectl get node {node}' says so" if node else "it is on no node yet"
    return f"the logs of {name} cannot be had: {refused.message}\n  {hint}"
