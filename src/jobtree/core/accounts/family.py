"""The family graph of owners: siblings, parents and further ancestors (C1)."""

from collections.abc import Iterable, Mapping

from jobtree.api.kinds.budget import BudgetSpec


def prefixes(owner: str) -> Iterable[str]:
    """Proper prefixes of an owner's path, longest first."""
    while ":" in owner:
        owner = owner.rpartition(":")[0]
        yield owner


class Family:
    """The parents of every owner that has a Budget, and the tiers and cycles that follow from them."""

    def __init__(self, budgets: Iterable[BudgetSpec]) -> None:
        declared: dict[str, set[str] | None] = {}
        for spec in budgets:
            parents_so_far = declared.setdefault(spec.owner, None)
            if spec.parents is not None:
                declared[spec.owner] = (parents_so_far or set()) | set(spec.parents)
        self._owners = frozenset(declared)
        self.parents: Mapping[str, tuple[str, ...]] = {
            owner: self._parents(owner, parents) for owner, parents in declared.items()
        }
        children: dict[str, set[str]] = {}
        for owner, parents in self.parents.items():
            for parent in parents:
                children.setdefault(parent, set()).add(owner)
        self._children = children

    def _parents(self, owner: str, declared: set[str] | None) -> tuple[str, ...]:
        if declared is None:
            return self._by_path(owner)
        return tuple(sorted(parent for parent in declared if parent in self._owners and parent != owner))

    def _by_path(self, owner: str) -> tuple[str, ...]:
        nearest = next((prefix for prefix in prefixes(owner) if prefix in self._owners), None)
        return () if nearest is None else (nearest,)

    def tiers(self, owner: str) -> list[list[str]]:
        """Returns the owners by tier, nearest first: itself, siblings, parents, grandparents, … (C2)."""
        if owner not in self._owners:
            return [[owner], [], list(self._by_path(owner))]
        parents = self.parents[owner]
        listed = {owner, *parents}
        siblings = sorted({child for parent in parents for child in self._children[parent]} - listed)
        tiers = [[owner], siblings, list(parents)]
        listed.update(siblings)
        generation = parents
        while generation:
            older = {parent for member in generation for parent in self.parents[member]} - listed
            generation = tuple(sorted(older))
            listed |= older
            if generation:
                tiers.append(list(generation))
        return tiers

    def cycle(self) -> list[str] | None:
        """Returns the owners of a cycle of parents, the first one again at the end; None: no cycle."""
        done: set[str] = set()
        for start in sorted(self.parents):
            path: list[str] = []
            cycle = self._walk(start, path, done)
            if cycle:
                return cycle
        return None

    def cycle_through(self, owner: str) -> list[str] | None:
        """Returns a cycle of parents that this owner is part of, from it to itself; None: no cycle."""
        came_from: dict[str, str] = {}
        waiting = [owner]
        while waiting:
            member = waiting.pop()
            for parent in self.parents[member]:
                if parent not in came_from:
                    came_from[parent] = member
                    waiting.append(parent)
        if owner not in came_from:
            return None
        path = [owner]
        while len(path) == 1 or path[-1] != owner:
            path.append(came_from[path[-1]])
        return path[::-1]

    def _walk(self, owner: str, path: list[str], done: set[str]) -> list[str] | None:
        if owner in path:
            return [*path[path.index(owner) :], owner]
        if owner in done:
            return None
        path.append(owner)
        for parent in self.parents[owner]:
            cycle = self._walk(parent, path, done)
            if cycle:
                return cycle
        path.pop()
        done.add(owner)
        return None
