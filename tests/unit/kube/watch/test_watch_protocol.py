import json

import msgspec
import pytest

from jobtree.kube.http.api_errors import KubeError, StatusError, UnreachableError
from jobtree.kube.http.api_resources import PODS
from jobtree.kube.http.backoff import Backoff
from jobtree.kube.watch.watch_protocol import FIRST_WATCH_SECONDS, WATCH_SECONDS, WatchProtocol
from tests.unit.kube.server import bookmark, event, status, thing


class Notes:
    """A sink that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def restart(self) -> None:
        self.told.append("restart")

    def upsert(self, encoded: bytes | msgspec.Raw) -> str:
        return self._note("upsert", encoded)

    def delete(self, encoded: bytes | msgspec.Raw) -> str:
        return self._note("delete", encoded)

    def finish(self) -> None:
        self.told.append("finish")

    def _note(self, what: str, encoded: bytes | msgspec.Raw) -> str:
        metadata = msgspec.json.decode(encoded)["metadata"]
        self.told.append(f"{what} {metadata['name']}")
        return str(metadata["resourceVersion"])


@pytest.fixture(name="notes")
def _notes() -> Notes:
    return Notes()


@pytest.fixture(name="follow")
def _follow(notes: Notes) -> WatchProtocol:
    return WatchProtocol(PODS, notes, backoff=Backoff(draw=lambda: 0.0))


def take(follow: WatchProtocol, *lines: bytes) -> None:
    for line in lines:
        follow.take(line.rstrip())


def synced(follow: WatchProtocol, version: int) -> None:
    follow.next_watch()
    take(follow, bookmark(version, end=True))


def test_everything_comes_first_then_the_changes(follow: WatchProtocol, notes: Notes) -> None:
    first = follow.next_watch().target
    assert "sendInitialEvents=true" in first
    assert f"timeoutSeconds={FIRST_WATCH_SECONDS}" in first
    take(follow, event("ADDED", thing("a", 7)), event("ADDED", thing("b", 3)))
    assert follow.resource_version == "", "the versions of a listing say nothing before its end"
    take(follow, bookmark(9, end=True), event("MODIFIED", thing("a", 10)), event("DELETED", thing("b", 11)))
    assert notes.told == ["restart", "upsert a", "upsert b", "finish", "upsert a", "delete b"]
    assert follow.resource_version == "11"


def test_a_watch_goes_on_from_the_last_version_seen(follow: WatchProtocol) -> None:
    synced(follow, 5)
    take(follow, bookmark(8))
    again = follow.next_watch().target
    assert "resourceVersion=8" in again
    assert f"timeoutSeconds={WATCH_SECONDS}" in again
    assert "sendInitialEvents" not in again


def test_a_listing_that_breaks_off_begins_anew(follow: WatchProtocol, notes: Notes) -> None:
    follow.next_watch()
    take(follow, event("ADDED", thing("a", 7)))
    follow.pause(UnreachableError("cut", may_have_happened=False))
    assert "sendInitialEvents=true" in follow.next_watch().target
    assert notes.told == ["restart", "upsert a", "restart"]


@pytest.mark.parametrize("code", [400, 422])
def test_a_server_that_cannot_stream_lists_is_asked_for_pages(
    follow: WatchProtocol, notes: Notes, code: int
) -> None:
    follow.next_watch()
    assert follow.pause(StatusError(code, "Invalid", "sendInitialEvents is forbidden")) == 0
    assert follow.must_list
    conversation = follow.list_pages()
    assert next(conversation).target == "/api/v1/pods?limit=500"
    body = {"metadata": {"resourceVersion": "20"}, "items": [thing("a", 3)]}
    with pytest.raises(StopIteration):
        conversation.send(json.dumps(body).encode())
    assert notes.told[1:] == ["restart", "upsert a", "finish"]
    assert "resourceVersion=20" in follow.next_watch().target


def test_a_forgotten_version_means_listing_again(follow: WatchProtocol) -> None:
    synced(follow, 5)
    with pytest.raises(StatusError) as error:
        take(follow, event("ERROR", status(410, "Expired")))
    assert follow.pause(error.value) == 0
    assert "sendInitialEvents=true" in follow.next_watch().target


def test_a_server_that_forgets_everything_at_once_is_not_asked_without_rest(follow: WatchProtocol) -> None:
    synced(follow, 5)
    gone = StatusError(410, "Expired", "too old")
    waits = [follow.pause(gone) for _ in range(4)]
    assert waits == [0, 0.2, 0.4, 0.8]


def test_a_watch_that_said_something_goes_on_at_once(follow: WatchProtocol) -> None:
    synced(follow, 5)
    assert follow.pause(None) == 0
    assert follow.pause(None) > 0, "a watch that ends without a word must not become a storm"


@pytest.mark.parametrize(
    "trouble", [UnreachableError("x", may_have_happened=False), StatusError(503, "", "x")]
)
def test_trouble_is_met_with_patience_until_there_is_news(follow: WatchProtocol, trouble: KubeError) -> None:
    synced(follow, 5)
    assert [follow.pause(trouble) for _ in range(3)] == [0.2, 0.4, 0.8]
    take(follow, bookmark(6))
    assert follow.pause(trouble) == 0.2
    assert follow.resource_version == "6"


def test_a_server_that_says_when_to_come_again_is_obeyed(follow: WatchProtocol) -> None:
    assert follow.pause(StatusError(429, "TooManyRequests", "busy", retry_after_seconds=30)) > 30


@pytest.mark.parametrize("line", [b"half a li", b'{"type":"ADDED","object":nonsense}', b"{}", b"null"])
def test_a_garbled_line_ends_the_watch(follow: WatchProtocol, line: bytes) -> None:
    synced(follow, 5)
    with pytest.raises(UnreachableError, match="garbled"):
        follow.take(line)
    assert follow.resource_version == "5"


def test_events_spelled_otherwise_are_read_too(follow: WatchProtocol, notes: Notes) -> None:
    synced(follow, 5)
    follow.take(json.dumps({"object": thing("a", 6), "type": "ADDED"}, indent=1).replace("\n", "").encode())
    assert notes.told[-1] == "upsert a"
