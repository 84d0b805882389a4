"""Lists the pods of a Run on a live cluster, and prints their logs."""

from typing import Any

import click

from jobtree.cli.shell.command_errors import CommandError, Exit
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.shell.table import Column, print_table
from jobtree.cli.source.session import live_cluster
from jobtree.client.source.live_pods import RunPods, pod_label
from jobtree.kube.installation import ATTEMPT_LABEL, GROUP_LABEL, RANK_LABEL, ROLE_LABEL

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


def run_pods(settings: CommandOptions, run: str) -> RunPods:
    if not settings.live:
        raise CommandError(Exit.USAGE, "a simulated cluster has no pods: leave out --state and JOBTREE_STATE")
    return RunPods(live_cluster(settings), run)


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
        prefix = f"[{pod_label(pod, RANK_LABEL)}] " if len(pods) > 1 else ""
        for line in run_pods.log(pod, container, follow=follow):
            click.echo(f"{prefix}{line}")
