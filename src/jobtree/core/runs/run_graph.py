"""How Runs belong together: trees and their stages, stage gangs, and Runs that follow others.

The graph is updated by events, in any order in which objects arrive. The tree, the gang and the quotas of a
stage follow from the spec of the tree. A Run that has the name of a stage is a stage only if the tree
controls it (H3).
"""

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

from jobtree.core.accounts.envelope_accounts import Account
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.runs.run_state import FINISHED, RunState
from jobtree.core.runs.run_tree import children_of, is_child, is_controlled_by, stage_gangs

Runs = dict[RunKey, RunState]


class RunGraph:
    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._children: dict[RunKey, tuple[RunKey, ...]] = {}  # the names that a tree needs for its stages
        self._trees: dict[RunKey, dict[RunKey, None]] = {}  # the trees that need a name
        self._followers: dict[RunKey, dict[RunKey, None]] = {}  # by upstream
        self._quotas: dict[RunKey, Account] = {}  # by tree

    def add(self, run: RunState) -> None:
        """Adds a new or edited Run, which may be a tree, a stage and a follower at once."""
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
        self._forget_names(run)
        self._children[run.key] = tuple(
            (child.metadata.namespace, child.metadata.name) for child in children_of(run.run_object)
        )
        for key in self._children[run.key]:
            self._trees.setdefault(key, {})[run.key] = None
            child = self._runs.get(key)
            if child is not None and is_child(run.run_object, child.run_object):
                child.set_tree(run.key)
            elif child is not None and child.parent == run.key:
                child.set_tree(None)  # it was a stage of an earlier tree of this name

    def get(self, key: RunKey) -> RunState | None:
        return self._runs.get(key)

    def forget(self, run: RunState) -> None:
        """Removes a Run that is gone."""
        self.remove_follower(run)
        self._forget_names(run)
        self._quotas.pop(run.key, None)

    def _forget_names(self, tree: RunState) -> None:
        for key in self._children.pop(tree.key, ()):
            self._trees[key].pop(tree.key, None)
            if not self._trees[key]:
                del self._trees[key]

    def remove_follower(self, run: RunState) -> None:
        """Removes a Run from the followers of its upstream Runs."""
        follow = run.run_object.spec.follow
        for name in follow.after if follow else ():
            self._followers.get((run.key[0], name), {}).pop(run.key, None)

    def update_gang_and_quotas(self, run: RunState) -> tuple[Account, ...]:
        """Sets the gang of a Run by the spec of its tree, and returns the quotas above it, nearest first."""
        run.set_gang(next((gang for gang in self._gangs(run) if run.key in gang), ()))
        trees = [tree.key for tree in self.trees_of(run)]
        return tuple(self._quotas[key] for key in trees if key in self._quotas)

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
        """Yields the trees above a Run, nearest first."""
        tree = self.tree_of(run)
        while tree is not None:
            yield tree
            tree = self.tree_of(tree)

    def trees_with_name(self, key: RunKey) -> Iterator[RunKey]:
        """Yields the trees that need this name for a stage, and the trees above them."""
        for tree in self._trees.get(key, ()):
            yield tree
            yield from self.trees_with_name(tree)

    def children(self, run: RunState) -> list[RunState]:
        """Returns the child Runs of a tree that exist."""
        return [
            child for child in self._named_children(run) if is_controlled_by(run.run_object, child.run_object)
        ]

    def taken_names(self, tree: RunState) -> list[str]:
        """Returns the names that a tree needs for its stages and that Runs which are not its stages have."""
        return [
            run.key[1]
            for run in self._named_children(tree)
            if not is_controlled_by(tree.run_object, run.run_object)
        ]

    def _named_children(self, tree: RunState) -> list[RunState]:
        return [self._runs[key] for key in self._children.get(tree.key, ()) if key in self._runs]

    def descendants(self, run: RunState) -> Iterator[RunState]:
        """Yields all Runs below a tree, including stages of stages."""
        for child in self.children(run):
            yield child
            yield from self.descendants(child)

    def members(self, run: RunState) -> list[RunState]:
        """Returns the unfinished Runs of the gang, in the order of the spec; without a gang, the Run."""
        if not run.gang:
            return [run]
        named = [self._runs[key] for key in run.gang if key in self._runs]
        gang = [member for member in named if member.parent == run.parent]
        return [member for member in gang if member.phase not in FINISHED] or [run]

    def missing_members(self, run: RunState) -> list[RunKey]:
        """Returns the stages of the gang that have no Run: nothing of the gang starts without them."""
        members = (self._runs.get(key) for key in run.gang)
        present = {member.key for member in members if member is not None and member.parent == run.parent}
        return [key for key in run.gang if key not in present]

    def find_cycle(self) -> list[RunKey]:
        """Returns Runs that wait for each other in a cycle; empty if there is none."""
        waits: dict[RunKey, list[RunKey]] = {}
        for key, followers in self._followers.items():
            for follower in followers:
                waits.setdefault(follower, []).append(key)
        try:
            TopologicalSorter(waits).prepare()
        except CycleError as error:
            return list(reversed(error.args[1]))
        return []

    def affected_by(self, key: RunKey) -> Iterator[RunState]:
        """Yields the Runs that depend on this one: trees that need its name, its followers, their stages."""
        yield from (self._runs[tree] for tree in self._trees.get(key, ()) if tree in self._runs)
        for follower_key in self._followers.get(key, ()):
            follower = self._runs.get(follower_key)
            if follower is not None:
                for member in self.members(follower):
                    yield member
                    yield from self.descendants(member)
