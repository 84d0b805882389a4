"""Events have valid names, and their writing leaves connections for decisions."""

import asyncio
import re

import msgspec
import pytest

from jobtree.kube.http.api_requests import Request
from jobtree.kube.write.object_writer import Writer
from jobtree.kube.write.write_gate import Gate
from jobtree.manager.cluster_view import ClusterView
from jobtree.manager.controllers.event_writer import EVENTS_AT_ONCE, EventWriter, event_document
from jobtree.manager.decisions.write_set import EventNote
from jobtree.manager.log import Log
from tests.unit.core.build import T0, run

SUBDOMAIN = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
)  # the rule of Kubernetes


@pytest.mark.parametrize(
    "name", ["r", "a.b", f"{'a' * 199}.b", f"{'a' * 199}-b", f"{'a' * 197}.-.b", "n" * 240]
)
def test_name_of_an_event_is_valid(name: str) -> None:
    original = run("r", "org", 8)
    metadata = msgspec.structs.replace(original.metadata, name=name)
    named = msgspec.structs.replace(original, metadata=metadata)
    document = event_document(EventNote(named, "Admitted", "it starts", T0))
    written = document["metadata"]
    assert isinstance(written, dict)
    assert SUBDOMAIN.fullmatch(written["name"])
    assert len(written["name"]) <= 253


class SlowServer:
    """A slow server; it records how many requests were sent at the same time."""

    def __init__(self) -> None:
        self.served = self.most = self._now = 0

    async def send(self, _: Request) -> bytes:
        self._now += 1
        self.most = max(self.most, self._now)
        for _turn in range(3):
            await asyncio.sleep(0)
        self._now -= 1
        self.served += 1
        return b"{}"


def test_number_of_events_written_at_once_is_limited() -> None:
    server = SlowServer()

    async def write_events() -> None:
        view = ClusterView("jobtree-system", lambda *_: None, lambda: None)
        writer = EventWriter(Writer(server, Gate()), view, Log())  # type: ignore[arg-type]
        writer.write_events(
            EventNote(run("r", "org", 8), "Admitted", f"it starts {number}", T0) for number in range(40)
        )
        await writer.drain()

    asyncio.run(write_events())
    assert (server.served, server.most) == (40, EVENTS_AT_ONCE)
