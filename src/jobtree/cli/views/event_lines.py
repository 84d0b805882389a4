"""What happened, a line each: when, what, to which Run, why."""

from collections.abc import Iterable, Iterator
from typing import Any

from jobtree.api.schema.object_meta import API_VERSION
from jobtree.api.schema.quantities import format_time
from jobtree.core import WARNINGS
from jobtree.messages.run_events import Event

PRINTED_WARNINGS = WARNINGS - {"NodeFailed"}  # printed as Normal, unlike on a live cluster


def event_lines(events: Iterable[Event], indent: str = "") -> Iterator[str]:
    """Aligned, in the order in which things happened."""
    listed = [(format_time(event.at), event.name, "/".join(event.run), event.message) for event in events]
    times, names, runs = (max((len(row[at]) for row in listed), default=0) for at in range(3))
    for when, name, run, message in listed:
        yield f"{indent}{when:<{times}}  {name:<{names}}  {run:<{runs}}  {message}"


def event_object(number: int, event: Event) -> dict[str, Any]:
    """The event as kubectl would show it."""
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
