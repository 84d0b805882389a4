"""Who belongs to whom among Runs: trees and their stages, gangs of stages, and who waits for whom.

Kept by events, whatever order objects arrive in. A stage's tree, its gang and its quotas follow from the
tree's own spec.
"""

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

from jobtree.core.accounts.envelope_accounts import Account
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.runs.run_state import FINISHED, RunState
from jobtree.core.runs.run_tree import children_of, is_child, stage_gangs

Runs = dict[RunKey, RunState]


class RunGraph:
    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._children: dict[RunKey, tuple[RunKey, ...]] = {}
        self._followers: dict[RunKey, dict[RunKey, None]] = {}
        self._quotas: dict[RunKey, Account] = {}

    def add(self, run: RunState) -> None:
        """A Run came: it may be a tree, a stage, a follower, or all of them."""
        follow = run.run_object.spec.follow
        for name in follow.after if follow else ():
            self._followers.setdefault((run.key[0], name), {})[run.key] = None
        self._index_tree(run)
        for reference in run.run_object.metadata.owner_references:
            tree = self._runs.get((run.key[0], reference.name))
            if tree is not None and tree.is_tree and is_child(tree.run_object, run.run_object):
                run.set_tree(tree.key)

    def _index_tree(self, run: RunState) -> None:
        if not run.is_tree:
            return
        quota = run.run_object.spec.quota
        if quota is not None and quota != type(quota)():
            label = f"{run.key[0]}/{run.key[1]}"
            account = self._quotas.setdefault(run.key, Account(label, None, None))
            account.set_limits(quota.max_gpus, quota.max_gpu_hours)
        self._children[run.key] = tuple(
            (child.metadata.namespace, child.metadata.name) for child in children_of(run.run_object)
        )
        for child in self.children(run):
            if is_child(run.run_object, child.run_object):
                child.set_tree(run.key)

    def get(self, key: RunKey) -> RunState | None:
        return self._runs.get(key)

    def forget(self, run: RunState) -> None:
        """The Run is gone."""
        self.remove_follower(run)
        self._children.pop(run.key, None)
        self._quotas.pop(run.key, None)

    def remove_follower(self, run: RunState) -> None:
        """It follows nobody any more, or others."""
        follow = run.run_object.spec.follow
        for name in follow.after if follow else ():
            self._followers.get((run.key[0], name), {}).pop(run.key, None)

    def update_gang_and_quotas(self, run: RunState) -> tuple[Account, ...]:
        """Its gang as its tree says now; the quotas of all trees above it, nearest first."""
        run.set_gang(next((gang for gang in self._gangs(run) if run.key in gang), ()))
        above = [tree.key for tree in self.trees_of(run)]
        return tuple(self._quotas[key] for key in above if key in self._quotas)

    def quota(self, tree: RunKey) -> Account | None:
        return self._quotas.get(tree)

    def quotas(self) -> list[Account]:
        return list(self._quotas.values())

    def _gangs(self, run: RunState) -> list[tuple[RunKey, ...]]:
        tree = self.tree_of(run)
        return stage_gangs(tree.run_object) if tree is not None else []

    def tree_of(self, run: RunState) -> RunState | None:
        return self._runs.get(run.parent) if run.parent is not None else None

    def trees_of(self, run: RunState) -> Iterator[RunState]:
        tree = self.tree_of(run)
        while tree is not None:
            yield tree
            tree = self.tree_of(tree)

    def children(self, run: RunState) -> list[RunState]:
        """The stages' Runs that are there."""
        return [self._runs[key] for key in self._children.get(run.key, ()) if key in self._runs]

    def descendants(self, run: RunState) -> Iterator[RunState]:
        """All Runs of a tree, stages of stages included."""
        for child in self.children(run):
            yield child
            yield from self.descendants(child)

    def members(self, run: RunState) -> list[RunState]:
        """The Run, or all of its gang that is not finished, in the order they are written."""
        if not run.gang:
            return [run]
        known = [self._runs[key] for key in run.gang if key in self._runs]
        return [one for one in known if one.phase not in FINISHED] or [run]

    def find_cycle(self) -> list[RunKey]:
        """Runs that wait for each other in a cycle; empty where there is none."""
        waits: dict[RunKey, list[RunKey]] = {}
        for key, followers in self._followers.items():
            for follower in followers:
                waits.setdefault(follower, []).append(key)
        try:
            TopologicalSorter(waits).prepare()
        except CycleError as found:
            return list(reversed(found.args[1]))
        return []

    def affected_by(self, key: RunKey) -> Iterator[RunState]:
        """Runs that wait for this one or sum it up: its tree, its followers, and who waits with those."""
        run = self._runs.get(key)
        tree = self.tree_of(run) if run is not None else None
        if tree is not None:
            yield tree
        for name in self._followers.get(key, ()):
            follower = self._runs.get(name)
            if follower is not None:
                for member in self.members(follower):
                    yield member
                    yield from self.descendants(member)
