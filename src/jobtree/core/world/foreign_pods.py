"""Strangers: pods that are not Jobtree's, and those that only say they are.

A pod that is not Jobtree's uses up its node until it is finished (P1). A pod is Jobtree's if a Run of its own
namespace has the UID that it names: else anybody could hide a pod. Objects arrive in any order, so a pod may
name a Run that nobody knows yet: until that Run comes, or a lease tells that there was one, it is a stranger.
"""

from typing import TYPE_CHECKING

from jobtree.api.kubernetes.pod import Pod

if TYPE_CHECKING:
    from jobtree.core.world.world import World


class ForeignPods:
    def __init__(self, world: "World") -> None:
        self._world = world
        self.pods: dict[str, Pod] = {}  # by UID
        self._on_node: dict[str, dict[str, Pod]] = {}  # the same by node
        self._claimed: dict[str, dict[str, Pod]] = {}  # those that name a Run nobody knows, by its UID
        self._namespaces: dict[str, str] = {}  # of all Runs that there are or were, by UID

    def put(self, pod: Pod) -> None:
        """A pod came or changed."""
        self.drop(pod.uid)
        if pod.finished or not pod.node:
            return
        if pod.run_uid:
            if self._namespaces.get(pod.run_uid) == pod.namespace:
                return
            self._claimed.setdefault(pod.run_uid, {})[pod.uid] = pod
        self.pods[pod.uid] = pod
        self._on_node.setdefault(pod.node, {})[pod.uid] = pod
        fleet = self._world.fleet
        fleet.add_foreign_load(pod.node, pod.gpus, pod.cpu_milli, pod.memory_bytes)
        if pod.gpus and pod.node in fleet.nodes:
            if self._world.is_loaded:  # not a loss, if it was there all the time
                self._world.domains_that_shrank.add(fleet.nodes[pod.node].domain.name)
            self._world.recheck_all_promises = True

    def drop(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self._claimed.get(pod.run_uid, {}).pop(uid, None)
            del self._on_node[pod.node][uid]
            if not self._on_node[pod.node]:
                del self._on_node[pod.node]
            self._world.fleet.add_foreign_load(pod.node, -pod.gpus, -pod.cpu_milli, -pod.memory_bytes)
            self._world.date_search_generation += 1

    def add_to_node(self, node: str) -> None:
        """A node came anew: they are on it already."""
        for pod in self._on_node.get(node, {}).values():
            self._world.fleet.add_foreign_load(node, pod.gpus, pod.cpu_milli, pod.memory_bytes)

    def forget_run(self, uid: str) -> None:
        """Nothing will be told of that Run again."""
        self._namespaces.pop(uid, None)

    def register_run(self, uid: str, namespace: str) -> None:
        """There is such a Run, or was, as a lease says: pods of its namespace that name it are Jobtree's."""
        if uid not in self._namespaces:
            self._namespaces[uid] = namespace
            for pod in list(self._claimed.pop(uid, {}).values()):
                self.put(pod)
