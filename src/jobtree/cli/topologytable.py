"""The fleet by domain, and the labels that would mend it."""

from collections import Counter
from collections.abc import Iterator

import click

from jobtree.api.nodes import DOMAIN_LABELS, FLAVOR_LABEL, Node, read_node
from jobtree.cli.errors import Exit
from jobtree.cli.settings import Settings
from jobtree.cli.table import WIDE_ONLY, Column, print_table
from jobtree.cli.words import ranges
from jobtree.core.fleet import Domain
from jobtree.sim.cluster import Cluster

COLUMNS = (
    Column("DOMAIN"),
    Column("FLAVOR"),
    Column("NODES", right=True),
    Column("READY", right=True),
    Column("GPUS", right=True),
    Column("FREE", right=True),
    Column("NODE NAMES", rank=WIDE_ONLY),
)
FABRIC = "fabric.domain"


def print_topology(settings: Settings, cluster: Cluster) -> Exit:
    fleet = cluster.world.fleet
    rows = [row(domain) for _, flavor in sorted(fleet.flavors.items()) for domain in in_order(flavor.domains)]
    if rows:
        print_table(settings, COLUMNS, rows)
    else:
        click.echo("no nodes with GPUs")
    nodes = [read_node(body, key[2]) for key, body in cluster.objects.of("Node")]
    advice = list(mends([node for node in nodes if node.gpus]))
    if advice:
        click.echo("labels to mend:")
    for line in advice:
        click.echo(f"  {line}")
    return Exit.NO if advice else Exit.OK


def in_order(domains: dict[str, Domain]) -> list[Domain]:
    return [domains[name] for name in sorted(domains)]


def row(domain: Domain) -> list[str]:
    states = [domain.nodes[name] for name in sorted(domain.nodes)]
    ready = [state for state in states if state.offers]
    return [
        domain.name,
        domain.flavor,
        str(len(states)),
        str(len(ready)),
        str(sum(state.node.gpus for state in states)),
        str(domain.free),
        ranges([state.node.name for state in states]),
    ]


def mends(nodes: list[Node]) -> Iterator[str]:
    """Nodes with GPUs that lack a label, or differ from the others of their fabric; what would mend each."""
    for node in sorted(nodes, key=lambda node: node.name):
        if not node.flavor:
            yield f"kubectl label node {node.name} {FLAVOR_LABEL}=…  # without it nothing is placed there"
        missing = [label for label in DOMAIN_LABELS if label not in node.labels]
        if FABRIC in missing:
            said = "it counts as an island of its own, shared with all that lack it"
            yield f"kubectl label node {node.name} {FABRIC}=…  # without it {said}"
            continue
        kin = [
            other for other in nodes if other.labels.get(FABRIC) == node.labels[FABRIC] and other is not node
        ]
        for label in ("region", "cluster"):
            usual = Counter(other.labels.get(label, "") for other in kin).most_common(1)
            if usual and usual[0][1] * 2 > len(kin) and usual[0][0] not in ("", node.labels.get(label, "")):
                fabric = f"{FABRIC}={node.labels[FABRIC]}"
                yield f"kubectl label node {node.name} {label}={usual[0][0]}  # as others of {fabric}"
