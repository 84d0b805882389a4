"""Watches which pods of a Run are refused, by whom and in which words (N3).

The API server refuses to create a pod; a kubelet rejects it, or cannot start its containers; the scheduler
finds no node for it, or does not answer; its volumes do not come; other pods do not leave its node. All of
that is reported until the pod runs, also in the pauses between two tries. The core decides what follows.
A pod that waits without words is refused only after a part of the grace, since most pods wait a moment.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from jobtree.api.schema.quantities import MINUTE, SECOND, parse_time
from jobtree.core import GroupRank, RefusedPods
from jobtree.kube.watch.object_decoder import LivePod
from jobtree.kube.watch.object_store import StoredObject
from jobtree.manager.controllers.observed_pods import ObservedPods, PodName
from jobtree.manager.decisions.pod_outcomes import PodsRefused
from jobtree.manager.decisions.write_set import DesiredPods
from jobtree.manager.pods.pod_names import pod_name
from jobtree.manager.pods.pod_set import PodPlacement

FIRST_PAUSE_MS = 5 * SECOND
MOST_PAUSE_MS = MINUTE
LATE_MS = 5 * SECOND  # after its grace period, until a pod hangs
UNSCHEDULED_MS = 10 * SECOND  # the scheduler may not know yet that other pods are gone
NO_SCHEDULER = "no scheduler has placed its pods"
NOT_PREPARED = "its volumes or its network are not ready"

Words = tuple[str, str]  # the node that refuses a pod, empty if none in particular, and why
GpusOfNode = Callable[[str], int | None]  # None: the node is gone
PodKey = tuple[str, str]  # UID of the Run, name of the pod


class _Retry(NamedTuple):
    """When a rejected pod is replaced, and after how many rejections."""

    pod: str  # its UID
    times: int
    at: int


class RefusedPodTracker:
    def __init__(self, observed_pods: ObservedPods, gpus_of_node: GpusOfNode) -> None:
        self._observed_pods = observed_pods
        self._gpus_of_node = gpus_of_node
        self._known: dict[str, dict[str, str]] = {}  # words by node as last reported, by UID of the Run
        self._not_created: dict[PodKey, str] = {}  # why the API server refused a pod
        self._creations: dict[str, int] = {}  # refused in succession, by UID of the Run
        self._retries: dict[PodKey, _Retry] = {}
        self._look_again_at: dict[str, int] = {}  # by UID of the Run

    # What happens

    def set_known(self, uid: str, desired: DesiredPods) -> None:
        """Takes over which refusals the core knows, after it decided something or was loaded."""
        self._known[uid] = dict(desired.refusals)
        names = {pod_name(desired.run.metadata.name, uid, pod.part) for pod in desired.pod_set.placements}
        for pods in (self._not_created, self._retries):
            for key in [key for key in pods if key[0] == uid and key[1] not in names]:
                del pods[key]
        if not names:
            self.forget_run(uid)

    def forget_run(self, uid: str) -> None:
        for per_run in (self._known, self._creations, self._look_again_at):
            per_run.pop(uid, None)

    def refuse_creation(self, uid: str, name: str, words: str) -> None:
        """Records that the API server refused to create a pod."""
        self._not_created[uid, name] = words

    def creation_pause(self, uid: str) -> int:
        """Returns how long to wait after creations were refused: twice as long as the last time."""
        self._creations[uid] = self._creations.get(uid, 0) + 1
        return pause(self._creations[uid])

    def accept_creation(self, uid: str, name: str) -> None:
        self._not_created.pop((uid, name), None)
        self._creations.pop(uid, None)

    def must_replace(self, uid: str, pod: StoredObject[LivePod], now: int) -> bool:
        """Whether a rejected pod is to be deleted now, so that it is tried again."""
        if not pod.value.rejected:
            return False
        key = (uid, pod.name)
        retry = self._retries.get(key)
        if retry is None or retry.pod != pod.uid:
            times = 1 if retry is None else retry.times + 1
            retry = self._retries[key] = _Retry(pod.uid, times, now + pause(times))
        if retry.at > now:
            self.look_again(uid, retry.at)
        return retry.at <= now

    def take_due(self, now: int) -> set[str]:
        """Returns the Runs to look at again because time has passed."""
        due = {uid for uid, at in self._look_again_at.items() if at <= now}
        for uid in due:
            del self._look_again_at[uid]
        return due

    def next_look_at(self) -> int | None:
        return min(self._look_again_at.values(), default=None)

    def look_again(self, uid: str, at: int) -> None:
        """Has the Run looked at again at that instant."""
        self._look_again_at[uid] = min(at, self._look_again_at.get(uid, at))

    # What follows

    def report(self, uid: str, desired: DesiredPods, now: int, grace: int) -> PodsRefused | None:
        """Returns which pods are refused now; None if none are and none were."""
        refused: dict[str, tuple[str, list[GroupRank], list[str]]] = {}
        for placement, (node, why) in self._refusals(uid, desired, now, grace):
            _, ranks, spare_nodes = refused.setdefault(node, (why, [], []))
            if placement.is_rank:
                ranks.append((placement.group, placement.group_rank))
            else:
                spare_nodes.append(placement.node)
        if not refused and not self._known.get(uid):
            return None
        self._known[uid] = {node: why for node, (why, _, _) in refused.items()}
        metadata = desired.run.metadata
        return PodsRefused(
            (metadata.namespace, metadata.name),
            uid,
            desired.pod_set.attempt,
            tuple(
                RefusedPods(node, why, tuple(ranks), tuple(dict.fromkeys(spare_nodes)))
                for node, (why, ranks, spare_nodes) in sorted(refused.items())
            ),
        )

    def _refusals(
        self, uid: str, desired: DesiredPods, now: int, grace: int
    ) -> Iterator[tuple[PodPlacement, Words]]:
        pods, known = self._observed_pods.pods_of(desired.run), self._known.get(uid, {})
        for placement in desired.pod_set.placements:
            name = pod_name(desired.run.metadata.name, uid, placement.part)
            pod = pods.get(name)
            if pod is None:
                key = (desired.run.metadata.namespace, name)
                words = self._why_missing(uid, key, placement, known, now)
            elif placement.is_at(pod.value.pod.node):
                words = self._why_not_running(uid, placement, pod.value, known, now, grace)
            else:
                words = None  # it is still elsewhere
            if words is not None:
                node, why = words
                yield placement, (node, known.get(node, why))

    def _why_missing(
        self, uid: str, pod: PodName, placement: PodPlacement, known: Mapping[str, str], now: int
    ) -> Words | None:
        """Who keeps a pod from being created. What is known holds until it is tried again."""
        refused = self._not_created.get((uid, pod[1]))
        if refused is not None:
            return "", refused
        is_requested = self._observed_pods.is_expected(pod)
        full = None if is_requested else self._why_full(uid, placement, now)
        if full is not None:
            return placement.node, full
        return next(((node, known[node]) for node in (placement.node, "") if node in known), None)

    def _why_full(self, uid: str, placement: PodPlacement, now: int) -> str | None:
        """Why a node has no room for a pod, though no pod there is within its grace period."""
        gpus, used = self._gpus_of_node(placement.node), self._observed_pods.used(placement.node)
        if not placement.gpus or gpus is None or used + placement.gpus <= gpus:
            return None
        terminating = self._observed_pods.terminating(placement.node)
        over_at = [parse_time(pod.value.deleted) + LATE_MS for pod in terminating if pod.value.deleted]
        if any(at > now for at in over_at):
            self.look_again(uid, max(over_at))
            return None
        names = ", ".join(sorted(f"{pod.namespace}/{pod.name}" for pod in terminating)[:3])
        hanging = f": {names} is still terminating" if names else ""
        return f"pods use {used} of its {gpus} GPUs, so there is no room for {placement.gpus}{hanging}"

    def _why_not_running(  # noqa: PLR0913, PLR0917  whose pod, where, and what is known at which time
        self,
        uid: str,
        placement: PodPlacement,
        pod: LivePod,
        known: Mapping[str, str],
        now: int,
        grace: int,
    ) -> Words | None:
        if pod.rejected or pod.stuck:
            return placement.node, pod.rejected or pod.stuck
        if pod.phase not in ("", "Pending"):
            return None
        if placement.node in known:
            return placement.node, known[placement.node]
        return self._why_waiting(uid, placement, pod, now, grace)

    def _why_waiting(
        self, uid: str, placement: PodPlacement, pod: LivePod, now: int, grace: int
    ) -> Words | None:
        """Who keeps a pod waiting for longer than usual."""
        if not pod.waits_since or pod.deleted is not None:
            return None
        patience = min(UNSCHEDULED_MS, grace // 2) if pod.unscheduled else grace // 2
        at = parse_time(pod.waits_since) + patience
        if at > now:
            self.look_again(uid, at)
            return None
        if pod.unscheduled:
            return placement.node, pod.unscheduled
        return (placement.node, NOT_PREPARED) if pod.pod.bound else ("", NO_SCHEDULER)


def pause(times: int) -> int:
    """Returns the pause after so many refusals in succession, in milliseconds."""
    return min(FIRST_PAUSE_MS << min(times - 1, 16), MOST_PAUSE_MS)
