"""Finds nodes with missing or inconsistent labels, and the commands that fix them.

A value is proposed if most nodes nearby have it: nodes of the same rack or, for region and cluster, of the
same fabric; for the flavor, of the same domain. Two clusters may each have a fabric of one name, so a node
counts as misplaced only if no other node is in the domain that its labels name.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from jobtree.api.kubernetes.node import DOMAIN_LABELS, FLAVOR_LABEL, Node

FABRIC = "fabric.domain"
RACK = "rack"
DOMAIN = "domain"
UNKNOWN = "VALUE"


class LabelRepair(NamedTuple):
    """A label that a node should have, and why."""

    node: Node
    label: str
    value: str
    why: str

    @property
    def command(self) -> str:
        force = " --overwrite" if self.label in self.node.labels else ""
        return f"kubectl label node {self.node.name} {self.label}={self.value or UNKNOWN}{force}"


def label_repairs(nodes: Iterable[Node]) -> Iterator[LabelRepair]:
    """Yields the repairs for nodes that have GPUs, by node name."""
    with_gpus = sorted((node for node in nodes if node.gpus), key=lambda node: node.name)
    neighbors = Neighbors(with_gpus)
    yield from misspelled_flavors(with_gpus)
    for node in with_gpus:
        yield from missing_labels(node, neighbors)
        yield from wrong_labels(node, neighbors)


class Neighbors:
    """Counts the values of labels among the nodes of each rack, fabric and domain, in one pass."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.domains: Counter[object] = Counter()
        self._values: dict[
            tuple[str, object, str], Counter[str]
        ] = {}  # by label nearby, its value, and label
        for node in nodes:
            self.domains[node.domain] += 1
            for near, value in places_of(node):
                for label in (FLAVOR_LABEL, *DOMAIN_LABELS):
                    counts = self._values.setdefault((near, value, label), Counter())
                    counts[node.labels.get(label, "")] += 1

    def majority(self, node: Node, label: str, near: str) -> str:
        """Returns the value that more than half of the other nodes nearby have; empty if there is none."""
        value = dict(places_of(node)).get(near)
        if value is None:
            return ""
        counts = self._values[near, value, label].copy()
        counts[node.labels.get(label, "")] -= 1
        (usual, number), *_ = counts.most_common(1)
        return usual if 2 * number > counts.total() else ""


def places_of(node: Node) -> list[tuple[str, object]]:
    """Returns where a node is, in words of its labels: its domain, its rack, its fabric."""
    racks: list[tuple[str, object]] = [
        (label, node.labels[label]) for label in (RACK, FABRIC) if label in node.labels
    ]
    return [(DOMAIN, node.domain), *racks]


def nodes_without_gpus(nodes: Iterable[Node]) -> list[str]:
    """Returns nodes with a flavor label that report no GPUs."""
    return sorted(node.name for node in nodes if node.flavor and not node.gpus)


def misspelled_flavors(nodes: list[Node]) -> Iterator[LabelRepair]:
    """Yields the nodes whose flavor is spelled in another way than that of most nodes: ``h100-80gb``."""
    spellings: dict[str, Counter[str]] = {}
    for node in nodes:
        if node.flavor:
            spellings.setdefault(plain_spelling(node.flavor), Counter())[node.flavor] += 1
    for node in nodes:
        counts = spellings.get(plain_spelling(node.flavor or ""), Counter())
        usual = min(counts, key=lambda name: (-counts[name], name), default=node.flavor)
        if node.flavor and node.flavor != usual:
            why = f"{counts[usual]} of {counts.total()} nodes spell it so, and a Run never uses both"
            yield LabelRepair(node, FLAVOR_LABEL, usual or "", why)


def plain_spelling(flavor: str) -> str:
    """Returns the letters and digits of a flavor in lower case: ``h10080gb``."""
    return "".join(letter for letter in flavor.lower() if letter.isalnum())


def missing_labels(node: Node, neighbors: Neighbors) -> Iterator[LabelRepair]:
    if not node.flavor:
        value = neighbors.majority(node, FLAVOR_LABEL, DOMAIN)
        yield LabelRepair(node, FLAVOR_LABEL, value, "no pod is placed on the node without it")
    for label in DOMAIN_LABELS:
        if label in node.labels:
            continue
        if label == FABRIC:
            value = neighbors.majority(node, label, RACK)
            yield LabelRepair(node, label, value, "all nodes without it count as one domain of their own")
        elif value := neighbors.majority(node, label, FABRIC):
            yield LabelRepair(
                node, label, value, f"other nodes with {FABRIC}={node.labels.get(FABRIC, '')} have it"
            )


def wrong_labels(node: Node, neighbors: Neighbors) -> Iterator[LabelRepair]:
    if FABRIC not in node.labels or neighbors.domains[node.domain] > 1:
        return
    for label in ("region", "cluster"):
        value = neighbors.majority(node, label, FABRIC)
        if label in node.labels and value not in ("", node.labels[label]):
            yield LabelRepair(
                node, label, value, f"no other node is there: those with this {FABRIC} are in {value}"
            )
