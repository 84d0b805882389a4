"""``advance --faults``: nodes fail and heal on the way, as a seed or a file says."""

from collections.abc import Iterator
from heapq import merge
from operator import attrgetter
from pathlib import Path
from typing import Any

from jobtree.api.schema.quantities import parse_time
from jobtree.cli.shell.command_errors import CommandError, Exit
from jobtree.cli.views.event_lines import event_object
from jobtree.messages.run_events import Event
from jobtree.simulation.inputs.fault_model import (
    Down,
    Fault,
    FaultFileError,
    FaultRates,
    draw_downtimes,
    faults,
    inject,
    recorded,
)
from jobtree.snapshot.cluster import Cluster

NODE = "node"  # in the place of a namespace
WORDS = {"fail": ("NodeFailed", "out of service"), "heal": ("NodeHealed", "in service")}


def advance_with_faults(cluster: Cluster, until: int, source: str, rate: float) -> list[Event]:
    """Let time pass with faults on the way; all that happened, to nodes and to Runs, in order."""
    down = outages(cluster, until, source, rate)
    told = inject(cluster, faults(down, cluster.now, until), until)
    return list(merge(map(as_event, told), cluster.events, key=attrgetter("at")))


def outages(cluster: Cluster, until: int, source: str, rate: float) -> Down:
    """When nodes are down. Raises CommandError for what is neither a seed nor a file of outages."""
    nodes = cluster.domains()
    if source.isdecimal():
        return draw_downtimes(int(source), nodes, until, FaultRates().faster(rate))
    path = Path(source)
    if not path.exists():
        said = f"--faults {source}: neither a whole number, from which outages are drawn, nor a file of them"
        raise CommandError(Exit.NOT_FOUND, said)
    try:
        return recorded(path, nodes, first_node_created(cluster))
    except FaultFileError as broken:
        raise CommandError(Exit.IO, str(broken)) from None


def first_node_created(cluster: Cluster) -> int:
    """When the first node came: there a recorded file begins."""
    created = [parse_time(body["metadata"]["creationTimestamp"]) for _, body in cluster.objects.of("Node")]
    return min(created, default=cluster.now)


def as_event(fault: Fault) -> Event:
    name, message = WORDS[fault.kind]
    return Event(fault.at, name, (NODE, fault.node), message)


def event_objects(events: list[Event]) -> Iterator[dict[str, Any]]:
    """The events as kubectl would show them; those of nodes are about nodes."""
    for number, event in enumerate(events):
        body = event_object(number, event)
        if event.run[0] == NODE and event.name in ("NodeFailed", "NodeHealed"):
            body["metadata"]["namespace"] = "default"
            body["involvedObject"] = {"apiVersion": "v1", "kind": "Node", "name": event.run[1]}
        yield body
