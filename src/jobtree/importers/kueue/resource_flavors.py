"""Converts ResourceFlavors and Topologies to node labels.

Jobtree reads the labels of a node: ``gpu.flavor`` is the kind of GPU; ``region``, ``cluster`` and
``fabric.domain`` together name its domain. Two ResourceFlavors with the same GPU (spot and on demand, two
zones) become one flavor, and the selectors of envelopes separate them. Either can then pay for a Run, as with
flavor fungibility.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from jobtree.api.kubernetes.node import DOMAIN_LABELS, FLAVOR_LABEL, Node
from jobtree.importers.conversion import Converted
from jobtree.importers.kubernetes_names import flavor_name
from jobtree.importers.kueue.kueue_kinds import ResourceFlavor, Topology

HOSTNAME: Final = "kubernetes.io/hostname"
# Labels with the model of a node's GPUs.
MODELS: Final = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "gpu.nvidia.com/model",
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "accelerator",
    "gpu-type",
    "gpu",
)


@dataclass
class Flavors:
    """The ResourceFlavors by name, the flavor of each, and the labels that make domains."""

    by_name: dict[str, ResourceFlavor] = field(default_factory=dict)
    called: dict[str, str] = field(default_factory=dict)
    islands: dict[str, str] = field(default_factory=dict)  # label of Jobtree: label of the level

    def name(self, resource_flavor: str) -> str:
        return self.called.get(resource_flavor) or flavor_name(resource_flavor)

    def selector(self, resource_flavor: str) -> dict[str, str]:
        """The labels that separate the nodes of this ResourceFlavor from others with the same GPU."""
        flavor = self.by_name.get(resource_flavor)
        if flavor is None:
            return {}
        return {key: value for key, value in flavor.spec.node_labels.items() if key not in MODELS}

    def matches(self, resource_flavor: str, wanted: Mapping[str, str]) -> bool:
        """Whether pods with this node selector may use it: the selector contradicts none of its labels."""
        flavor = self.by_name.get(resource_flavor)
        labels = flavor.spec.node_labels if flavor else {}
        return all(wanted.get(key, value) == value for key, value in labels.items())


def read_flavors(
    flavors: Iterable[ResourceFlavor],
    topologies: Iterable[Topology],
    names: Mapping[str, str],
    out: Converted,
) -> Flavors:
    read = Flavors()
    for flavor in flavors:
        name, labels = flavor.metadata.name, flavor.spec.node_labels
        model = next((labels[key] for key in MODELS if key in labels), name)
        read.by_name[name] = flavor
        read.called[name] = names.get(name) or flavor_name(model)
    for old in names:
        if old not in read.by_name:
            read.called[old] = names[old]
    for topology in topologies:
        read.islands |= _islands(topology, out)
    return read


def _islands(topology: Topology, out: Converted) -> dict[str, str]:
    """The lowest level above the node as the domain, and the two above it as cluster and region."""
    levels = [level.node_label for level in topology.spec.levels if level.node_label != HOSTNAME]
    where = f"Topology {topology.metadata.name}"
    if not levels:
        out.remark(
            where, "no level above the node", "a domain has several nodes: label them with fabric.domain"
        )
    if len(levels) > len(DOMAIN_LABELS):
        out.remark(
            where, f"the level {levels[0]}", "Jobtree has three levels: region, cluster, fabric.domain"
        )
    return dict(zip(reversed(DOMAIN_LABELS), reversed(levels), strict=False))


def label_lines(flavors: Flavors, used: Collection[str], nodes: Iterable[Node]) -> list[str]:
    """The commands that label the nodes, by name if the nodes are known, else by their present labels.

    ``used`` are the ResourceFlavors of which a queue has GPUs.
    """
    gpu_nodes = sorted((node for node in nodes if node.gpus), key=lambda node: node.name)
    if not gpu_nodes:
        return [*_by_selector(flavors, used), *_islands_by_template(flavors)]
    lines: dict[str, list[str]] = {}
    for node in gpu_nodes:
        labels = _labels(flavors, used, node)
        if labels:
            lines.setdefault(" ".join(labels), []).append(node.name)
    return [f"kubectl label nodes {' '.join(names)} {labels}" for labels, names in lines.items()]


def _labels(flavors: Flavors, used: Collection[str], node: Node) -> list[str]:
    labels = []
    fitting = [
        name
        for name, flavor in flavors.by_name.items()
        if name in used and flavor.spec.node_labels.items() <= node.labels.items()
    ]
    if fitting:
        most = max(fitting, key=lambda name: (len(flavors.by_name[name].spec.node_labels), name))
        labels.append(f"{FLAVOR_LABEL}={flavors.name(most)}")
    for ours, theirs in sorted(flavors.islands.items()):
        if theirs in node.labels:
            labels.append(f"{ours}={flavor_name(node.labels[theirs])}")
    return labels


def _by_selector(flavors: Flavors, used: Collection[str]) -> Iterable[str]:
    for name, flavor in flavors.by_name.items():
        if name not in used:
            continue
        labels = ",".join(f"{key}={value}" for key, value in sorted(flavor.spec.node_labels.items()))
        chosen = f"-l '{labels}'" if labels else "--all"
        yield f"kubectl label nodes {chosen} {FLAVOR_LABEL}={flavors.name(name)}"


def _islands_by_template(flavors: Flavors) -> Iterable[str]:
    """Commands with a template, since the label of a level has another value on each node."""
    for ours, theirs in sorted(flavors.islands.items()):
        each = f'kubectl label node {{{{.metadata.name}}}} {ours}={{{{index .metadata.labels "{theirs}"}}}}'
        template = f'{{{{range .items}}}}{each}{{{{"\\n"}}}}{{{{end}}}}'
        yield f"kubectl get nodes -l '{theirs}' -o go-template='{template}' | sh"
