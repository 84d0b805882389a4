"""Pods that Jobtree does not manage, and pods that only name a Run of Jobtree.

A foreign pod uses GPUs of its node until it is finished (P1). A pod is Jobtree's if a Run of its namespace
has the UID that the pod names; without this check any user could hide a pod. Objects arrive in any order: a
pod that names a UID which is not known yet counts as foreign until that Run, or a lease of it, arrives.
"""

from jobtree.api.kubernetes.pod import Pod
from jobtree.core.supply.fleet import Fleet, PodLoad
from jobtree.core.world.pending_changes import PendingChanges


class ForeignPods:
    def __init__(self, fleet: Fleet, changes: PendingChanges) -> None:
        self._fleet = fleet
        self._changes = changes
        self.pods: dict[str, Pod] = {}  # by UID
        self._by_node: dict[str, dict[str, Pod]] = {}
        self._by_unknown_run: dict[str, dict[str, Pod]] = {}  # by the UID of a Run that is not known
        self._namespaces: dict[str, str] = {}  # of all Runs that exist or have existed, by UID

    def put(self, pod: Pod) -> None:
        """Records a new or changed pod, if it is foreign and runs on a node."""
        self.drop(pod.uid)
        if pod.finished or not (pod.node and pod.bound):
            return
        if pod.run_uid:
            if self._namespaces.get(pod.run_uid) == pod.namespace:
                return
            self._by_unknown_run.setdefault(pod.run_uid, {})[pod.uid] = pod
        self.pods[pod.uid] = pod
        self._by_node.setdefault(pod.node, {})[pod.uid] = pod
        self._fleet.add_foreign_load(pod.node, load_of(pod), 1)
        domain = self._fleet.domain_by_node.get(pod.node)
        if pod.gpus and domain is not None:
            if self._changes.is_loaded:
                self._changes.domains_that_shrank.add(domain.name)
            self._changes.check_promises(domain.promises)

    def drop(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self._by_unknown_run.get(pod.run_uid, {}).pop(uid, None)
            del self._by_node[pod.node][uid]
            if not self._by_node[pod.node]:
                del self._by_node[pod.node]
            self._fleet.add_foreign_load(pod.node, load_of(pod), -1)
            self._changes.date_search_generation += 1

    def add_to_node(self, node: str) -> None:
        """Adds the load of the pods that are on a node which has just been added."""
        for pod in self._by_node.get(node, {}).values():
            self._fleet.add_foreign_load(node, load_of(pod), 1)

    def register_run(self, uid: str, namespace: str) -> None:
        """Records that a Run exists, or existed: pods of its namespace that name it are Jobtree's."""
        if uid not in self._namespaces:
            self._namespaces[uid] = namespace
            for pod in list(self._by_unknown_run.pop(uid, {}).values()):
                self.put(pod)

    def forget_run(self, uid: str) -> None:
        """Forgets a Run of which no further object can arrive."""
        self._namespaces.pop(uid, None)


def load_of(pod: Pod) -> PodLoad:
    return PodLoad(pod.gpus, pod.cpu_milli, pod.memory_bytes, pod.others)
