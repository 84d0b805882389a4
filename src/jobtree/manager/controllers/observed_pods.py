"""The pods that are there, by Run and by node, and what they tell of their Run.

The kubelet counts GPUs by node: a pod can start where the pods that are there, those still stopping
included, leave room for it.
"""

from collections.abc import Iterable, KeysView

from jobtree.api.kinds.run import Run
from jobtree.kube.watch.object_decoder import LivePod
from jobtree.kube.watch.object_store import Change, StoredObject
from jobtree.manager.decisions.pod_outcomes import PodOutcome, RankLost, RunSucceeded, SpareLost
from jobtree.manager.decisions.write_set import DesiredPods
from jobtree.manager.pods.pod_names import pod_name
from jobtree.manager.pods.pod_set import PodPlacement

FINISHED = frozenset({"Succeeded", "Failed"})
# Why a pod failed that did nothing wrong: its node or somebody else ended it.
EVICTED = frozenset({"Evicted", "Preempting", "NodeShutdown", "Shutdown", "Terminated", "NodeLost"})
REJECTED = ("OutOf", "UnexpectedAdmissionError", "Node")  # by the kubelet, before it started

PodName = tuple[str, str]  # namespace, name


class ObservedPods:
    def __init__(self) -> None:
        self._pods: dict[
            tuple[str, str], dict[str, StoredObject[LivePod]]
        ] = {}  # by namespace and UID of the Run
        self._namespaces: dict[str, set[str]] = {}  # the namespaces of those, by UID of the Run
        self._pending: dict[PodName, tuple[str, int]] = {}  # deleting for and not seen yet: node, GPUs
        self._used: dict[str, int] = {}  # GPUs by node
        self._counted: dict[str, tuple[str, int]] = {}  # by UID of the pod
        self._seen: dict[str, set[tuple[str, str]]] = {}  # pods and their nodes, by UID of the Run
        self._reported: set[str] = set()  # Runs whose pods told something that nobody has answered yet

    # What is there

    def handle_changes(self, changes: Iterable[Change[LivePod]]) -> set[str]:
        """The UIDs of the Runs whose pods changed, and of none for other pods."""
        touched: set[str] = set()
        for change in changes:
            for stored in (change.before, change.after):
                if stored is not None and stored.value.run_uid:
                    touched.add(stored.value.run_uid)
            if change.before is not None and change.after is None:
                self._forget(change.before)
            elif change.after is not None:
                self._remember(change.after)
        return touched

    def pods_of(self, run: Run) -> dict[str, StoredObject[LivePod]]:
        """The pods of a Run by name: those of its own namespace, whatever others elsewhere say of theirs."""
        return self._pods.get((run.metadata.namespace, run.metadata.uid), {})

    @property
    def runs(self) -> KeysView[str]:
        """The UIDs of all Runs that have pods; pods in a namespace that is not theirs count as well."""
        return self._namespaces.keys()

    def _remember(self, stored: StoredObject[LivePod]) -> None:
        live = stored.value
        self.forget_expected((stored.namespace, stored.name))
        self._count(
            stored.uid, None if live.pod.finished or not live.pod.node else (live.pod.node, live.pod.gpus)
        )
        if live.run_uid:
            self._namespaces.setdefault(live.run_uid, set()).add(stored.namespace)
            self._pods.setdefault((stored.namespace, live.run_uid), {})[stored.name] = stored

    def _forget(self, stored: StoredObject[LivePod]) -> None:
        self._count(stored.uid, None)
        key = (stored.namespace, stored.value.run_uid)
        pods = self._pods.get(key, {})
        if stored.name in pods and pods[stored.name].uid == stored.uid:
            del pods[stored.name]
            if not pods:
                del self._pods[key]
                self._remove_run(*key)

    def _remove_run(self, namespace: str, uid: str) -> None:
        self._namespaces[uid].discard(namespace)
        if not self._namespaces[uid]:
            del self._namespaces[uid]

    def _count(self, uid: str, use: tuple[str, int] | None) -> None:
        before = self._counted.pop(uid, None)
        for one, sign in ((before, -1), (use, 1)):
            if one is not None and one[1]:
                self._used[one[0]] = self._used.get(one[0], 0) + sign * one[1]
        if use is not None:
            self._counted[uid] = use

    def used(self, node: str) -> int:
        """GPUs of a node that pods have, or that were deleting for with pods not seen yet."""
        return self._used.get(node, 0)

    def expect_pod(self, pod: PodName, node: str, gpus: int) -> None:
        self._pending[pod] = (node, gpus)
        self._used[node] = self._used.get(node, 0) + gpus

    def is_expected(self, pod: PodName) -> bool:
        return pod in self._pending

    def forget_expected(self, pod: PodName) -> None:
        """The pod has been seen, and is counted as it is; or it could not be made."""
        deleting = self._pending.pop(pod, None)
        if deleting is not None:
            self._used[deleting[0]] -= deleting[1]

    # What it tells

    def outcomes(self, uid: str, desired: DesiredPods, now: int, deleting: set[str]) -> list[PodOutcome]:
        """What the ranks of a Run tell, until it is answered; ``deleting``: pods that Jobtree itself ends."""
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
        seen = self._seen[uid] = (self._seen.get(uid, set()) | now_seen) & expected
        run_key = (metadata.namespace, metadata.name)
        lost = [
            (placement, why)
            for name, placement in placements.items()
            if (why := self._why_lost(name, placement, pods.get(name), deleting, seen)) is not None
        ]
        ranks = [name for name, placement in placements.items() if placement.is_rank]
        done = all(name in pods and pods[name].value.phase == "Succeeded" for name in ranks)
        news: list[PodOutcome] = [
            RankLost(run_key, uid, pod_set.attempt, now, (placement.group, placement.group_rank), *why)
            for placement, why in lost
            if placement.is_rank
        ]
        if done or news:
            self._reported.add(uid)
        if done:
            return [RunSucceeded(run_key, uid, pod_set.attempt, now)]
        evicted = [placement.node for placement, (failed, _) in lost if not placement.is_rank and not failed]
        return [*(SpareLost(run_key, uid, node) for node in dict.fromkeys(evicted)), *news]

    def clear_reported(self, *uids: str) -> None:
        """Something was decided for these Runs, or what their pods told was lost: they may tell again."""
        self._reported.difference_update(uids)

    def _why_lost(
        self,
        name: str,
        placement: PodPlacement,
        stored: StoredObject[LivePod] | None,
        deleting: set[str],
        seen: set[tuple[str, str]],
    ) -> tuple[bool, str] | None:
        """Whether the pod failed of itself, and what it said; None: it is not lost."""
        if stored is None or not placement.is_at(stored.value.pod.node):
            return (False, "its pod was deleted") if (name, placement.node) in seen else None
        live = stored.value
        if live.phase == "Failed":
            excused = live.reason in EVICTED or live.reason.startswith(REJECTED)
            return not excused, live.reason or "its pod failed"
        if live.deleted is not None and live.phase != "Succeeded" and stored.uid not in deleting:
            return False, "its pod is being deleted"
        return None

    def forget_run(self, uid: str) -> None:
        self._seen.pop(uid, None)
        self._reported.discard(uid)
