"""Formats events, one a line: time, name, Run and message."""

from collections.abc import Iterable, Iterator
from typing import Any

from jobtree.api.schema.object_meta import API_VERSION
from jobtree.api.schema.quantities import format_time
from jobtree.core import WARNINGS
from jobtree.messages.run_events import Event

PRINTED_WARNINGS = WARNINGS - {"NodeFailed"}  # printed as Normal, unlike on a live cluster


def event_lines(events: Iterable[Event], indent: str = "") -> Iterator[str]:
    """Yields aligned lines, in the order of the events."""
    rows = [(format_time(event.at), event.name, "/".join(event.run), event.message) for event in events]
    times, names, runs = (max((len(row[column]) for row in rows), default=0) for column in range(3))
    for when, name, run, message in rows:
        yield f"{indent}{when:<{times}}  {name:<{names}}  {run:<{runs}}  {message}"


def event_object(number: int, event: Event) -> dict[str, Any]:
    """Returns the event as a Kubernetes Event."""
    namespace, name = event.run
    at = format_time(event.at)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{event.at:x}.{number}", "namespace": namespace},
        "involvedObject": {"apiVersion": API_VERSION, "kind": "Run", "namespace": namespace, "name": name},
        "type": "Warning" if event.name in PRINTED_WARNINGS else "Normal",
        "reason": event.name,
        "message": event.message,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
        "source": {"component": "jobtree"},
    }
