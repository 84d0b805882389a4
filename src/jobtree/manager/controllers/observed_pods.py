"""Keeps the pods that exist, by Run and by node, and derives what they report about their Run.

The kubelet counts GPUs by node. A pod can start only where the existing pods, including those that are
stopping, leave enough of them.
"""

from collections.abc import Callable, Iterable, KeysView

from jobtree.api.kinds.run import Run
from jobtree.kube.watch.object_decoder import LivePod
from jobtree.kube.watch.object_store import Change, StoredObject
from jobtree.manager.decisions.pod_outcomes import PodOutcome, RankLost, RunSucceeded, SpareLost
from jobtree.manager.decisions.write_set import DesiredPods
from jobtree.manager.pods.pod_names import pod_name
from jobtree.manager.pods.pod_set import PodPlacement

FINISHED = frozenset({"Succeeded", "Failed"})
# Reasons of failed pods that the node or somebody else ended.
EVICTED = frozenset({"Evicted", "Preempting", "NodeShutdown", "Shutdown", "Terminated", "NodeLost"})
REJECTED = ("OutOf", "UnexpectedAdmissionError", "Node")  # by a kubelet that started again

PodName = tuple[str, str]  # namespace, name


class ObservedPods:
    def __init__(self, knows_run: Callable[[str], bool] = lambda _: True) -> None:
        self._knows_run = knows_run  # by UID; anybody can make a pod that names a Run and waits for a node
        # By namespace and UID of the Run, then by name of the pod.
        self._pods: dict[tuple[str, str], dict[str, StoredObject[LivePod]]] = {}
        self._namespaces: dict[str, set[str]] = {}  # of these pods, by UID of the Run
        self._pending: dict[PodName, tuple[str, int]] = {}  # created and not seen yet: node, GPUs
        self._used: dict[str, int] = {}  # GPUs by node
        self._counted: dict[str, tuple[str, int]] = {}  # by UID of the pod
        self._terminating: dict[str, dict[str, StoredObject[LivePod]]] = {}  # by node, then by UID
        self._seen: dict[str, set[tuple[str, str]]] = {}  # pods and their nodes, by UID of the Run
        self._reported: set[str] = set()  # Runs whose outcome was returned and led to no decision yet

    # Existing pods

    def handle_changes(self, changes: Iterable[Change[LivePod]]) -> set[str]:
        """Takes in changed pods, and returns the UIDs of their Runs."""
        touched: set[str] = set()
        for change in changes:
            for pod in (change.before, change.after):
                if pod is not None and pod.value.run_uid:
                    touched.add(pod.value.run_uid)
            if change.before is not None and change.after is None:
                self._forget(change.before)
            elif change.after is not None:
                self._remember(change.after)
        return touched

    def pods_of(self, run: Run) -> dict[str, StoredObject[LivePod]]:
        """Returns the pods of a Run by name; only pods in the namespace of the Run count."""
        return self._pods.get((run.metadata.namespace, run.metadata.uid), {})

    @property
    def runs(self) -> KeysView[str]:
        """The UIDs of all Runs that have pods, in whatever namespace the pods are."""
        return self._namespaces.keys()

    def _remember(self, pod: StoredObject[LivePod]) -> None:
        live = pod.value
        self.forget_expected((pod.namespace, pod.name))
        if live.deleted is not None and live.pod.gpus and not live.pod.finished:
            self._terminating.setdefault(live.pod.node, {})[pod.uid] = pod
        else:
            self._forget_terminating(pod)
        counts = not live.pod.finished and (live.pod.bound or self._knows_run(live.run_uid))
        self._count(pod.uid, (live.pod.node, live.pod.gpus) if counts and live.pod.node else None)
        if live.run_uid:
            self._namespaces.setdefault(live.run_uid, set()).add(pod.namespace)
            self._pods.setdefault((pod.namespace, live.run_uid), {})[pod.name] = pod

    def _forget(self, pod: StoredObject[LivePod]) -> None:
        self._count(pod.uid, None)
        self._forget_terminating(pod)
        key = (pod.namespace, pod.value.run_uid)
        pods = self._pods.get(key, {})
        if pod.name in pods and pods[pod.name].uid == pod.uid:
            del pods[pod.name]
            if not pods:
                del self._pods[key]
                self._remove_run(*key)

    def _forget_terminating(self, pod: StoredObject[LivePod]) -> None:
        node = pod.value.pod.node
        pods = self._terminating.get(node, {})
        pods.pop(pod.uid, None)
        if not pods:
            self._terminating.pop(node, None)

    def terminating(self, node: str) -> list[StoredObject[LivePod]]:
        """Returns the pods with GPUs on a node that are being deleted."""
        return list(self._terminating.get(node, {}).values())

    def _remove_run(self, namespace: str, uid: str) -> None:
        self._namespaces[uid].discard(namespace)
        if not self._namespaces[uid]:
            del self._namespaces[uid]

    def _count(self, uid: str, use: tuple[str, int] | None) -> None:
        before = self._counted.pop(uid, None)
        for counted, sign in ((before, -1), (use, 1)):
            if counted is not None and counted[1]:
                node, gpus = counted
                self._used[node] = self._used.get(node, 0) + sign * gpus
        if use is not None:
            self._counted[uid] = use

    def used(self, node: str) -> int:
        """Returns the GPUs of a node that pods use, including created pods that were not seen yet."""
        return self._used.get(node, 0)

    def expect_pod(self, pod: PodName, node: str, gpus: int) -> None:
        self._pending[pod] = (node, gpus)
        self._used[node] = self._used.get(node, 0) + gpus

    def is_expected(self, pod: PodName) -> bool:
        return pod in self._pending

    def forget_expected(self, pod: PodName) -> None:
        """Stops counting a created pod: it has been seen and counts itself, or it could not be created."""
        pending = self._pending.pop(pod, None)
        if pending is not None:
            node, gpus = pending
            self._used[node] -= gpus

    # Outcomes

    def outcomes(self, uid: str, desired: DesiredPods, now: int, deleting: set[str]) -> list[PodOutcome]:
        """Returns what the pods of a Run report, once; ``deleting`` are pods that Jobtree itself deletes."""
        pod_set, metadata = desired.pod_set, desired.run.metadata
        if not pod_set.ranks or uid in self._reported:
            return []
        pods = self.pods_of(desired.run)
        placements = {
            pod_name(metadata.name, uid, placement.part): placement for placement in pod_set.placements
        }
        expected = {(name, placement.node) for name, placement in placements.items()}
        now_seen = {
            (name, node)
            for name, node in expected
            if name in pods and placements[name].is_at(pods[name].value.pod.node)
        }
        rejected = {(name, node) for name, node in now_seen if pods[name].value.rejected}
        seen = self._seen[uid] = ((self._seen.get(uid, set()) | now_seen) & expected) - rejected
        run_key = (metadata.namespace, metadata.name)
        lost = [
            (placement, why)
            for name, placement in placements.items()
            if (why := self._why_lost(name, placement, pods.get(name), deleting, seen)) is not None
        ]
        ranks = [name for name, placement in placements.items() if placement.is_rank]
        done = all(name in pods and pods[name].value.phase == "Succeeded" for name in ranks)
        outcomes: list[PodOutcome] = [
            RankLost(run_key, uid, pod_set.attempt, now, (placement.group, placement.group_rank), *why)
            for placement, why in lost
            if placement.is_rank
        ]
        if done or outcomes:
            self._reported.add(uid)
        if done:
            return [RunSucceeded(run_key, uid, pod_set.attempt, now)]
        evicted = [placement.node for placement, (failed, _) in lost if not placement.is_rank and not failed]
        return [*(SpareLost(run_key, uid, node) for node in dict.fromkeys(evicted)), *outcomes]

    def clear_reported(self, *uids: str) -> None:
        """Lets these Runs report again: something was decided for them, or their outcome was lost."""
        self._reported.difference_update(uids)

    def _why_lost(
        self,
        name: str,
        placement: PodPlacement,
        pod: StoredObject[LivePod] | None,
        deleting: set[str],
        seen: set[tuple[str, str]],
    ) -> tuple[bool, str] | None:
        """Returns whether the pod itself failed, and why; None if it is not lost."""
        if pod is None or not placement.is_at(pod.value.pod.node):
            return (False, "its pod was deleted") if (name, placement.node) in seen else None
        live = pod.value
        if live.rejected:
            return None  # it is refused, and tried again
        if live.phase == "Failed":
            excused = (
                live.reason in EVICTED
                or live.reason.startswith(REJECTED)
                or live.disrupted
                or (live.deleted is not None and pod.uid not in deleting)
            )
            return not excused, live.reason or "its pod failed"
        if live.deleted is not None and live.phase != "Succeeded" and pod.uid not in deleting:
            return False, "its pod is being deleted"
        return None

    def forget_run(self, uid: str) -> None:
        self._seen.pop(uid, None)
        self._reported.discard(uid)
