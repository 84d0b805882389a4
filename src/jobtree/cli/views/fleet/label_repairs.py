"""Nodes whose labels are missing or do not go together, and the commands that would mend them.

A value is proposed where other nodes agree on one: those of the same rack or, for region and cluster, of the
same fabric; for the flavor, of the same domain. Two clusters may each have a fabric of one name, so a node
counts as misplaced only if it is alone where its labels put it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from jobtree.api.kubernetes.node import DOMAIN_LABELS, FLAVOR_LABEL, Node

FABRIC = "fabric.domain"
RACK = "rack"
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


def mends(nodes: Iterable[Node]) -> Iterator[LabelRepair]:
    """All that is wrong with the labels of nodes that have GPUs, by node."""
    with_gpus = sorted((node for node in nodes if node.gpus), key=lambda node: node.name)
    for node in with_gpus:
        others = [other for other in with_gpus if other is not node]
        yield from unlabelled(node, others)
        yield from misplaced_node(node, others)


def bare(nodes: Iterable[Node]) -> list[str]:
    """Nodes that say which GPUs they have, by their label, and report none."""
    return sorted(node.name for node in nodes if node.flavor and not node.gpus)


def unlabelled(node: Node, others: list[Node]) -> Iterator[LabelRepair]:
    if not node.flavor:
        near = agreed(others, FLAVOR_LABEL, lambda other: other.domain == node.domain)
        yield LabelRepair(node, FLAVOR_LABEL, near, "nothing is placed there without it")
    for label in DOMAIN_LABELS:
        if label in node.labels:
            continue
        if label == FABRIC:
            value = agreed(others, label, lambda other: alike(node, other, RACK))
            yield LabelRepair(node, label, value, "it counts as an island of its own, with all that lack it")
        elif value := agreed(others, label, lambda other: alike(node, other, FABRIC)):
            yield LabelRepair(node, label, value, f"others of {FABRIC}={node.labels.get(FABRIC, '')} have it")


def misplaced_node(node: Node, others: list[Node]) -> Iterator[LabelRepair]:
    if FABRIC not in node.labels or any(other.domain == node.domain for other in others):
        return
    for label in ("region", "cluster"):
        value = agreed(others, label, lambda other: alike(node, other, FABRIC))
        if label in node.labels and value not in ("", node.labels[label]):
            yield LabelRepair(node, label, value, f"it is alone there, and others of {FABRIC} are in {value}")


def alike(node: Node, other: Node, label: str) -> bool:
    return label in node.labels and node.labels[label] == other.labels.get(label)


def agreed(others: list[Node], label: str, near: Callable[[Node], bool]) -> str:
    """What most nodes nearby have; empty where they do not agree."""
    values = Counter(other.labels.get(label, "") for other in others if near(other))
    (value, number), *_ = values.most_common(1) or [("", 0)]
    return value if 2 * number > values.total() else ""
