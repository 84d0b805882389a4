"""What submitted objects came to, and what that did to others."""

from collections.abc import Iterable, Iterator

from jobtree.cli.views.event_lines import event_lines
from jobtree.cli.views.place_names import Places
from jobtree.cli.views.runs.run_summary import run_outcome
from jobtree.snapshot.cluster import Cluster
from jobtree.snapshot.object_documents import Key, object_title


def submitted(cluster: Cluster, keys: Iterable[Key]) -> Iterator[str]:
    """A line or more for each object; then what happened to Runs that were there before."""
    places = Places(cluster.world)
    mine = set()
    for kind, namespace, name in keys:
        run = cluster.world.runs.get((namespace, name)) if kind == "Run" else None
        if run is not None:
            mine.add(run.key)
            yield from run_outcome(places, run)
        else:
            yield f"{object_title((kind, namespace, name))} is in place"
    others = [event for event in cluster.events if event.run not in mine]
    if others:
        yield "besides:"
        yield from event_lines(others, "  ")
