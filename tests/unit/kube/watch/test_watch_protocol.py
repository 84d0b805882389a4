import json

import msgspec
import pytest

from jobtree.kube.http.api_errors import KubeError, StatusError, UnreachableError
from jobtree.kube.http.api_resources import PODS
from jobtree.kube.http.backoff import Backoff
from jobtree.kube.watch.watch_protocol import FIRST_WATCH_SECONDS, WATCH_SECONDS, WatchProtocol
from tests.unit.kube.server import bookmark, event, status, thing


class RecordingSink:
    """A sink that records its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def restart(self) -> None:
        self.calls.append("restart")

    def upsert(self, encoded: bytes | msgspec.Raw) -> str:
        return self._record("upsert", encoded)

    def delete(self, encoded: bytes | msgspec.Raw) -> str:
        return self._record("delete", encoded)

    def finish(self) -> None:
        self.calls.append("finish")

    def _record(self, method: str, encoded: bytes | msgspec.Raw) -> str:
        metadata = msgspec.json.decode(encoded)["metadata"]
        self.calls.append(f"{method} {metadata['name']}")
        return str(metadata["resourceVersion"])


@pytest.fixture(name="sink")
def _sink() -> RecordingSink:
    return RecordingSink()


@pytest.fixture(name="protocol")
def _protocol(sink: RecordingSink) -> WatchProtocol:
    return WatchProtocol(PODS, sink, backoff=Backoff(draw=lambda: 0.0))


def apply_lines(protocol: WatchProtocol, *lines: bytes) -> None:
    for line in lines:
        protocol.apply_line(line.rstrip())


def sync(protocol: WatchProtocol, version: int) -> None:
    protocol.next_watch()
    apply_lines(protocol, bookmark(version, end=True))


def test_first_watch_sends_all_objects_then_the_changes(protocol: WatchProtocol, sink: RecordingSink) -> None:
    first = protocol.next_watch().target
    assert "sendInitialEvents=true" in first
    assert f"timeoutSeconds={FIRST_WATCH_SECONDS}" in first
    apply_lines(protocol, event("ADDED", thing("a", 7)), event("ADDED", thing("b", 3)))
    assert protocol.resource_version == "", "the version of a listing is used only when it is complete"
    apply_lines(
        protocol, bookmark(9, end=True), event("MODIFIED", thing("a", 10)), event("DELETED", thing("b", 11))
    )
    assert sink.calls == ["restart", "upsert a", "upsert b", "finish", "upsert a", "delete b"]
    assert protocol.resource_version == "11"


def test_next_watch_continues_from_the_last_version(protocol: WatchProtocol) -> None:
    sync(protocol, 5)
    apply_lines(protocol, bookmark(8))
    target = protocol.next_watch().target
    assert "resourceVersion=8" in target
    assert f"timeoutSeconds={WATCH_SECONDS}" in target
    assert "sendInitialEvents" not in target


def test_listing_begins_again_when_it_breaks_off(protocol: WatchProtocol, sink: RecordingSink) -> None:
    protocol.next_watch()
    apply_lines(protocol, event("ADDED", thing("a", 7)))
    protocol.pause(UnreachableError("cut", may_have_happened=False))
    assert "sendInitialEvents=true" in protocol.next_watch().target
    assert sink.calls == ["restart", "upsert a", "restart"]


@pytest.mark.parametrize("code", [400, 422])
def test_server_that_cannot_stream_lists_is_asked_for_pages(
    protocol: WatchProtocol, sink: RecordingSink, code: int
) -> None:
    protocol.next_watch()
    assert protocol.pause(StatusError(code, "Invalid", "sendInitialEvents is forbidden")) == 0
    assert protocol.must_list
    requests = protocol.list_pages()
    assert next(requests).target == "/api/v1/pods?limit=500"
    body = {"metadata": {"resourceVersion": "20"}, "items": [thing("a", 3)]}
    with pytest.raises(StopIteration):
        requests.send(json.dumps(body).encode())
    assert sink.calls[1:] == ["restart", "upsert a", "finish"]
    assert "resourceVersion=20" in protocol.next_watch().target


def test_everything_is_listed_again_when_the_version_is_forgotten(protocol: WatchProtocol) -> None:
    sync(protocol, 5)
    with pytest.raises(StatusError) as error:
        apply_lines(protocol, event("ERROR", status(410, "Expired")))
    assert protocol.pause(error.value) == 0
    assert "sendInitialEvents=true" in protocol.next_watch().target


def test_waits_grow_when_every_version_is_forgotten_at_once(protocol: WatchProtocol) -> None:
    sync(protocol, 5)
    gone = StatusError(410, "Expired", "too old")
    waits = [protocol.pause(gone) for _ in range(4)]
    assert waits == [0, 0.2, 0.4, 0.8]


def test_next_watch_starts_at_once_only_after_progress(protocol: WatchProtocol) -> None:
    sync(protocol, 5)
    assert protocol.pause(None) == 0
    assert protocol.pause(None) > 0, "watches that end at once must not follow each other without a wait"


@pytest.mark.parametrize("error", [UnreachableError("x", may_have_happened=False), StatusError(503, "", "x")])
def test_waits_after_errors_grow_until_there_is_progress(protocol: WatchProtocol, error: KubeError) -> None:
    sync(protocol, 5)
    assert [protocol.pause(error) for _ in range(3)] == [0.2, 0.4, 0.8]
    apply_lines(protocol, bookmark(6))
    assert protocol.pause(error) == 0.2
    assert protocol.resource_version == "6"


def test_wait_is_longer_than_the_retry_after_of_the_server(protocol: WatchProtocol) -> None:
    assert protocol.pause(StatusError(429, "TooManyRequests", "busy", retry_after_seconds=30)) > 30


@pytest.mark.parametrize("line", [b"half a li", b'{"type":"ADDED","object":nonsense}', b"{}", b"null"])
def test_invalid_line_ends_the_watch(protocol: WatchProtocol, line: bytes) -> None:
    sync(protocol, 5)
    with pytest.raises(UnreachableError, match="the server sent an invalid watch event"):
        protocol.apply_line(line)
    assert protocol.resource_version == "5"


def test_event_with_other_spacing_is_read(protocol: WatchProtocol, sink: RecordingSink) -> None:
    sync(protocol, 5)
    protocol.apply_line(
        json.dumps({"object": thing("a", 6), "type": "ADDED"}, indent=1).replace("\n", "").encode()
    )
    assert sink.calls[-1] == "upsert a"
