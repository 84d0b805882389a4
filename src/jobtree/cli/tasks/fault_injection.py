"""Implements ``advance --faults``: nodes fail and heal as drawn from a seed or listed in a file."""

from collections.abc import Iterator
from heapq import merge
from operator import attrgetter
from pathlib import Path
from typing import Any

from jobtree.api.schema.problems import InputError
from jobtree.api.schema.quantities import parse_time
from jobtree.cli.shell.command_errors import CommandError, Exit
from jobtree.cli.views.event_lines import event_object
from jobtree.messages.run_events import Event
from jobtree.simulation.cluster.node_faults import Fault, advance_with_faults, faults_between
from jobtree.simulation.cluster.simulated_cluster import SimulatedCluster
from jobtree.simulation.inputs.outages import Outage, OutageRates, cluster_outages, draw_cluster_outages

NODE = "node"  # stands where events of Runs have their namespace
EVENTS = {"fail": ("NodeFailed", "out of service"), "heal": ("NodeHealed", "in service")}


def simulate_faults(cluster: SimulatedCluster, until: int, source: str, rate: float) -> list[Event]:
    """Moves the clock with faults on the way. Returns the events of nodes and Runs in order."""
    faults = faults_between(find_outages(cluster, until, source, rate), cluster.now, until)
    effective = advance_with_faults(cluster, faults, until)
    return list(merge(map(as_event, effective), cluster.events, key=attrgetter("at")))


def find_outages(cluster: SimulatedCluster, until: int, source: str, rate: float) -> list[Outage[str]]:
    """Returns the outages of ``--faults``. Raises CommandError if it is neither a seed nor a file."""
    nodes = cluster.domains()
    if source.isdecimal():
        return draw_cluster_outages(int(source), nodes, until, OutageRates().faster(rate))
    if not Path(source).exists():
        rule = "must be a whole number, from which outages are drawn, or an existing file of outages"
        raise CommandError(Exit.NOT_FOUND, f"--faults {source}: {rule}")
    try:
        return cluster_outages(source, nodes, first_node_created(cluster))
    except InputError as error:
        raise CommandError(Exit.IO, str(error)) from None


def first_node_created(cluster: SimulatedCluster) -> int:
    """Returns when the first node was created; times in a file of outages count from it."""
    created = [parse_time(body["metadata"]["creationTimestamp"]) for _, body in cluster.objects.of("Node")]
    return min(created, default=cluster.now)


def as_event(fault: Fault) -> Event:
    name, message = EVENTS[fault.kind]
    return Event(fault.at, name, (NODE, fault.node), message)


def event_objects(events: list[Event]) -> Iterator[dict[str, Any]]:
    """Yields Kubernetes Events; events of nodes refer to the node."""
    for number, event in enumerate(events):
        body = event_object(number, event)
        if event.run[0] == NODE and event.name in ("NodeFailed", "NodeHealed"):
            body["metadata"]["namespace"] = "default"
            body["involvedObject"] = {"apiVersion": "v1", "kind": "Node", "name": event.run[1]}
        yield body
