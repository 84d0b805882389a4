"""Formats the table of domains."""

import click

from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.shell.table import WIDE_ONLY, Column, print_table
from jobtree.core import Domain
from jobtree.messages.wording import ranges
from jobtree.snapshot.cluster import Cluster

COLUMNS = (
    Column("DOMAIN"),
    Column("FLAVOR"),
    Column("NODES", right=True),
    Column("READY", right=True),
    Column("GPUS", right=True),
    Column("FREE", right=True),
    Column("NODE NAMES", rank=WIDE_ONLY),
)


def print_topology(settings: CommandOptions, cluster: Cluster) -> None:
    fleet = cluster.world.fleet
    rows = [
        domain_row(domain)
        for _, flavor in sorted(fleet.flavors.items())
        for domain in domains_in_order(flavor.domains)
    ]
    if rows:
        print_table(settings, COLUMNS, rows)
    else:
        click.echo("no nodes with GPUs")


def domains_in_order(domains: dict[str, Domain]) -> list[Domain]:
    return [domains[name] for name in sorted(domains)]


def domain_row(domain: Domain) -> list[str]:
    nodes = [domain.nodes[name] for name in sorted(domain.nodes)]
    schedulable = [node for node in nodes if node.is_schedulable]
    return [
        domain.name,
        domain.flavor,
        str(len(nodes)),
        str(len(schedulable)),
        str(sum(node.node.gpus for node in nodes)),
        str(domain.free),
        ranges([node.node.name for node in nodes]),
    ]
