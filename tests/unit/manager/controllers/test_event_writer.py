"""Events as they are written."""

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
)  # as Kubernetes has it


@pytest.mark.parametrize(
    "name", ["r", "a.b", f"{'a' * 199}.b", f"{'a' * 199}-b", f"{'a' * 197}.-.b", "n" * 240]
)
def test_the_name_of_an_event_is_one_that_kubernetes_takes(name: str) -> None:
    asked = run("r", "org", 8)
    named = msgspec.structs.replace(asked, metadata=msgspec.structs.replace(asked.metadata, name=name))
    document = event_document(EventNote(named, "Admitted", "it starts", T0))
    made = document["metadata"]
    assert isinstance(made, dict)
    assert SUBDOMAIN.fullmatch(made["name"])
    assert len(made["name"]) <= 253


class Slow:
    """A server that takes its time; it remembers how many requests were under way at once."""

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


def test_many_events_leave_room_for_decisions() -> None:
    server = Slow()

    async def tell() -> None:
        view = ClusterView("jobtree-system", lambda *_: None, lambda: None)
        herald = EventWriter(Writer(server, Gate()), view, Log())  # type: ignore[arg-type]
        herald.write_events(
            EventNote(run("r", "org", 8), "Admitted", f"it starts {number}", T0) for number in range(40)
        )
        await herald.drain()

    asyncio.run(tell())
    assert (server.served, server.most) == (40, EVENTS_AT_ONCE)
