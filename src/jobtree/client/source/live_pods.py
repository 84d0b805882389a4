"""Finds the pods of a Run on a live cluster, and reads their logs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jobtree.client.errors import NoAnswerError, NotFoundError
from jobtree.client.source.live_cluster import Live
from jobtree.client.source.live_runs import find
from jobtree.client.source.server_refusals import translated_errors
from jobtree.kube.http import api_requests
from jobtree.kube.http.api_errors import StatusError
from jobtree.kube.http.api_requests import Preconditions, Selector
from jobtree.kube.http.api_resources import PODS
from jobtree.kube.installation import ATTEMPT_LABEL, GROUP_LABEL, RANK_LABEL, UID_LABEL

ObjectBody = dict[str, Any]


class RunPods:
    """The pods of a Run, lowest rank first and standby pods last; found by their owner reference."""

    def __init__(self, live: Live, run: str) -> None:
        self.live = live
        self.run = find(live, run)
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
            raise NotFoundError(
                f"{self._name()} has no pod of rank {rank}{self._rank_hint()}", "Pod", f"rank {rank}"
            )
        return max(pods, key=lambda pod: int(pod_label(pod, ATTEMPT_LABEL) or 0))

    def of_group(self, group: int) -> list[ObjectBody]:
        pods = [
            pod
            for pod in self.pods
            if pod_label(pod, GROUP_LABEL) == str(group) and pod_label(pod, RANK_LABEL)
        ]
        if not pods:
            raise NotFoundError(
                f"{self._name()} has no pods in group {group}{self._rank_hint()}", "Pod", f"group {group}"
            )
        return pods

    def _name(self) -> str:
        return f"{self.run['metadata']['namespace']}/{self.run['metadata']['name']}"

    def _rank_hint(self) -> str:
        ranks = [int(rank) for pod in self.pods if (rank := pod_label(pod, RANK_LABEL)).isdecimal()]
        if not ranks:
            return f": it is {self.run.get('status', {}).get('phase', 'Pending')} and has no pods now"
        return f": its ranks are {min(ranks)} to {max(ranks)}"

    def log(self, pod: ObjectBody, container: str = "", *, follow: bool = False) -> Iterator[str]:
        """Yields the lines of a pod's log as they come; with ``follow``, until its container ends."""
        pod_key = Preconditions(pod["metadata"]["name"], pod["metadata"]["namespace"])
        with log_errors(pod), translated_errors():
            yield from self.live.client.lines(api_requests.pod_log(pod_key, container, follow=follow))


def pod_label(pod: ObjectBody, name: str) -> str:
    text: str = pod["metadata"].get("labels", {}).get(name, "")
    return text


@contextmanager
def log_errors(pod: ObjectBody) -> Iterator[None]:
    """Says what to check if a log cannot be read now: the API server reads logs from the node."""
    try:
        yield
    except NoAnswerError as error:
        if not isinstance(error.__context__, StatusError):
            raise
        name, node = pod["metadata"]["name"], pod["spec"].get("nodeName", "")
        hint = f"is its node up? check 'kubectl get node {node}'" if node else "it is not on a node yet"
        raise NoAnswerError(f"cannot read the logs of {name}: {error}\n  {hint}") from None
