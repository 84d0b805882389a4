"""Finds nodes with missing or inconsistent labels, and the commands that fix them.

A value is proposed if most nodes nearby have it: nodes of the same rack or, for region and cluster, of the
same fabric; for the flavor, of the same domain. Two clusters may each have a fabric of one name, so a node
counts as misplaced only if no other node is in the domain that its labels name.
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


def label_repairs(nodes: Iterable[Node]) -> Iterator[LabelRepair]:
    """Yields the repairs for nodes that have GPUs, by node name."""
    with_gpus = sorted((node for node in nodes if node.gpus), key=lambda node: node.name)
    yield from misspelled_flavors(with_gpus)
    for node in with_gpus:
        others = [other for other in with_gpus if other is not node]
        yield from missing_labels(node, others)
        yield from wrong_labels(node, others)


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


def missing_labels(node: Node, others: list[Node]) -> Iterator[LabelRepair]:
    if not node.flavor:
        value = majority_value(others, FLAVOR_LABEL, lambda other: other.domain == node.domain)
        yield LabelRepair(node, FLAVOR_LABEL, value, "no pod is placed on the node without it")
    for label in DOMAIN_LABELS:
        if label in node.labels:
            continue
        if label == FABRIC:
            value = majority_value(others, label, lambda other: share_label(node, other, RACK))
            yield LabelRepair(node, label, value, "all nodes without it count as one domain of their own")
        elif value := majority_value(others, label, lambda other: share_label(node, other, FABRIC)):
            yield LabelRepair(
                node, label, value, f"other nodes with {FABRIC}={node.labels.get(FABRIC, '')} have it"
            )


def wrong_labels(node: Node, others: list[Node]) -> Iterator[LabelRepair]:
    if FABRIC not in node.labels or any(other.domain == node.domain for other in others):
        return
    for label in ("region", "cluster"):
        value = majority_value(others, label, lambda other: share_label(node, other, FABRIC))
        if label in node.labels and value not in ("", node.labels[label]):
            yield LabelRepair(
                node, label, value, f"no other node is there: those with this {FABRIC} are in {value}"
            )


def share_label(node: Node, other: Node, label: str) -> bool:
    return label in node.labels and node.labels[label] == other.labels.get(label)


def majority_value(others: list[Node], label: str, is_near: Callable[[Node], bool]) -> str:
    """Returns the value that more than half of the nodes nearby have; empty if there is none."""
    values = Counter(other.labels.get(label, "") for other in others if is_near(other))
    (value, number), *_ = values.most_common(1) or [("", 0)]
    return value if 2 * number > values.total() else ""
