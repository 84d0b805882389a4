"""Builds the events of a Run from its leases and Reservations, which are kept longer than Events."""

from collections.abc import Iterator
from typing import Any

from jobtree.api.schema.quantities import parse_time
from jobtree.cli.views.runs.run_history import moment_text, moments
from jobtree.client.source.lease_entries import LeaseEntry, entries
from jobtree.core import FINISHED, RunKey
from jobtree.messages.run_events import Event
from jobtree.snapshot.cluster import Cluster


def runs_with_a_past(cluster: Cluster) -> list[RunKey]:
    """Returns the Runs that exist and those that left leases."""
    return sorted({*cluster.world.runs, *(entry.lease.run_key for entry in entries(cluster, lambda _: True))})


def past_events(cluster: Cluster, key: RunKey) -> list[Event]:
    """Returns the events of a Run and of its stages, oldest first."""
    cluster.documents()
    run = cluster.world.runs.get(key)
    stages = cluster.world.run_graph.descendants(run) if run is not None else []
    keys = {key, *(stage.key for stage in stages)}
    leases = entries(cluster, lambda lease: lease.run_key in keys)
    events = [
        event
        for run_key in sorted(keys)
        for event in (
            *creation(cluster, run_key),
            *activations(cluster, run_key),
            *lease_events(run_key, [entry for entry in leases if entry.lease.run_key == run_key]),
            *promises(cluster, run_key),
            *ending(cluster, run_key),
        )
    ]
    return sorted(events, key=lambda event: event.at)


def creation(cluster: Cluster, key: RunKey) -> Iterator[Event]:
    run = cluster.world.runs.get(key)
    if run is not None:
        yield Event(run.created, "Created", key, f"by {run.owner}")


def ending(cluster: Cluster, key: RunKey) -> Iterator[Event]:
    run = cluster.world.runs.get(key)
    if run is not None and run.phase in FINISHED:
        cause = run.verdict.causes[-1] if run.verdict and run.verdict.causes else ""
        yield Event(run.phase_at, run.phase, key, str(cause))


def lease_events(key: RunKey, leases: list[LeaseEntry]) -> Iterator[Event]:
    for moment, changed in moments(leases):
        yield Event(moment.at, moment.reason, key, moment_text(moment, changed))


def promises(cluster: Cluster, key: RunKey) -> Iterator[Event]:
    for name, body in reservations_of(cluster, key):
        start = body["spec"].get("earliestStart")
        if made := body["metadata"].get("creationTimestamp"):
            when = f"due at {start}" if start else "without a date"
            yield Event(parse_time(made), "Reserved", key, f"reservation {name}, {when}")


def activations(cluster: Cluster, key: RunKey) -> Iterator[Event]:
    for name, body in reservations_of(cluster, key):
        start, status = body["spec"].get("earliestStart"), body.get("status") or {}
        if start and status.get("state") == "Activated":
            yield Event(parse_time(start), "Activated", key, f"reservation {name} was due")


def reservations_of(cluster: Cluster, key: RunKey) -> Iterator[tuple[str, dict[str, Any]]]:
    for (_, namespace, name), body in cluster.objects.of("Reservation"):
        if (namespace, body["spec"]["runRef"]["name"]) == key:
            yield name, body
