"""Describes the outcome of submitted objects and its effects on other Runs."""

from collections.abc import Iterable, Iterator

from jobtree.cli.views.event_lines import event_lines
from jobtree.cli.views.place_names import Places
from jobtree.cli.views.runs.run_summary import run_outcome
from jobtree.snapshot.cluster import Cluster
from jobtree.snapshot.object_documents import Key, object_title


def submitted(cluster: Cluster, keys: Iterable[Key]) -> Iterator[str]:
    """Yields lines for each object, then the events of other Runs."""
    places = Places(cluster.world)
    submitted_runs = set()
    for kind, namespace, name in keys:
        run = cluster.world.runs.get((namespace, name)) if kind == "Run" else None
        if run is not None:
            submitted_runs.add(run.key)
            yield from run_outcome(places, run)
        else:
            yield f"{object_title((kind, namespace, name))} is in place"
    other_events = [event for event in cluster.events if event.run not in submitted_runs]
    if other_events:
        yield "also:"
        yield from event_lines(other_events, "  ")
