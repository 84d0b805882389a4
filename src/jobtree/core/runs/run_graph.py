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

    def add(self, state: RunState) -> None:
        """A Run came: it may be a tree, a stage, a follower, or all of them."""
        follow = state.run.spec.follow
        for name in follow.after if follow else ():
            self._followers.setdefault((state.key[0], name), {})[state.key] = None
        self._index_tree(state)
        for reference in state.run.metadata.owner_references:
            tree = self._runs.get((state.key[0], reference.name))
            if tree is not None and tree.is_tree and is_child(tree.run, state.run):
                state.parent = tree.key

    def _index_tree(self, state: RunState) -> None:
        if not state.is_tree:
            return
        quota = state.run.spec.quota
        if quota is not None and quota != type(quota)():
            label = f"{state.key[0]}/{state.key[1]}"
            account = self._quotas.setdefault(state.key, Account(label, None, None))
            account.set_limits(quota.max_gpus, quota.max_gpu_hours)
        self._children[state.key] = tuple(
            (child.metadata.namespace, child.metadata.name) for child in children_of(state.run)
        )
        for child in self.children(state):
            if is_child(state.run, child.run):
                child.parent = state.key

    def forget(self, state: RunState) -> None:
        """The Run is gone."""
        self.remove_follower(state)
        self._children.pop(state.key, None)
        self._quotas.pop(state.key, None)

    def remove_follower(self, state: RunState) -> None:
        """It follows nobody any more, or others."""
        follow = state.run.spec.follow
        for name in follow.after if follow else ():
            self._followers.get((state.key[0], name), {}).pop(state.key, None)

    def update_gang_and_quotas(self, state: RunState) -> tuple[Account, ...]:
        """Its gang as its tree says now; the quotas of all trees above it, nearest first."""
        state.gang = next((gang for gang in self._gangs(state) if state.key in gang), ())
        above = [tree.key for tree in self.trees_of(state)]
        return tuple(self._quotas[key] for key in above if key in self._quotas)

    def quota(self, tree: RunKey) -> Account | None:
        return self._quotas.get(tree)

    def quotas(self) -> list[Account]:
        return list(self._quotas.values())

    def _gangs(self, state: RunState) -> list[tuple[RunKey, ...]]:
        tree = self.tree_of(state)
        return stage_gangs(tree.run) if tree is not None else []

    def tree_of(self, state: RunState) -> RunState | None:
        return self._runs.get(state.parent) if state.parent is not None else None

    def trees_of(self, state: RunState) -> Iterator[RunState]:
        tree = self.tree_of(state)
        while tree is not None:
            yield tree
            tree = self.tree_of(tree)

    def children(self, state: RunState) -> list[RunState]:
        """The stages' Runs that are there."""
        return [self._runs[key] for key in self._children.get(state.key, ()) if key in self._runs]

    def descendants(self, state: RunState) -> Iterator[RunState]:
        """All Runs of a tree, stages of stages included."""
        for child in self.children(state):
            yield child
            yield from self.descendants(child)

    def members(self, state: RunState) -> list[RunState]:
        """The Run, or all of its gang that is not finished, in the order they are written."""
        if not state.gang:
            return [state]
        known = [self._runs[key] for key in state.gang if key in self._runs]
        return [one for one in known if one.phase not in FINISHED] or [state]

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
        state = self._runs.get(key)
        tree = self.tree_of(state) if state is not None else None
        if tree is not None:
            yield tree
        for name in self._followers.get(key, ()):
            follower = self._runs.get(name)
            if follower is not None:
                for member in self.members(follower):
                    yield member
                    yield from self.descendants(member)
