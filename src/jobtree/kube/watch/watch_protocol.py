"""Following one kind: what to ask next and what the answers mean, without sending anything.

A watch begins with all there is (``sendInitialEvents``; servers that refuse are asked for a paged list), is
marked by bookmarks, and goes on from the last version seen whenever the connection ends. A version that the
server has forgotten (410) means listing again; the sink then finds out what was missed. Until a listing is
complete its version is not used: what broke off half-way begins anew.
"""

import re
from typing import Protocol

import msgspec

from jobtree.kube.http.api_errors import INVALID, KubeError, StatusError, UnreachableError, status_error
from jobtree.kube.http.api_requests import EVERYTHING, Request, Selector, watch
from jobtree.kube.http.api_resources import Resource
from jobtree.kube.http.backoff import Backoff
from jobtree.kube.http.list_pages import Conversation, pages

BAD_REQUEST = 400
SILENCE_SECONDS = 70.0
WATCH_SECONDS = 60
FIRST_WATCH_SECONDS = 600
"""Bookmarks come every minute, and a watch ends after one: silence of more than 70 s is a dead connection.
The first watch of all lasts longer, for the server counts the time it takes to send everything."""


class Sink(Protocol):
    """What is told of a kind: ``jobtree.kube.watch.object_store`` says what each means."""

    def restart(self) -> None: ...
    def upsert(self, encoded: bytes | msgspec.Raw) -> str: ...
    def delete(self, encoded: bytes | msgspec.Raw) -> str: ...
    def finish(self) -> None: ...


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _BookmarkMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] = {}


class _Bookmark(msgspec.Struct):
    metadata: _BookmarkMeta


INITIAL_END = "k8s.io/initial-events-end"
_ENVELOPE = re.compile(rb'\{"type":"([A-Z]+)","object":')
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_bookmark = msgspec.json.Decoder(_Bookmark).decode


class WatchProtocol:
    """The state of one watch."""

    def __init__(
        self,
        resource: Resource,
        sink: Sink,
        selector: Selector = EVERYTHING,
        backoff: Backoff | None = None,
    ) -> None:
        self.resource = resource
        self.resource_version = ""
        self._sink = sink
        self._selector = selector
        self._backoff = backoff or Backoff()
        self._streams_lists = True
        self._listing = False
        self._told = False

    @property
    def must_list(self) -> bool:
        """Whether a paged list comes before the next watch."""
        return not self.resource_version and not self._streams_lists

    def list_pages(self) -> Conversation[None]:
        def take(items: list[msgspec.Raw]) -> None:
            for item in items:
                self._sink.upsert(item)

        self.resource_version = yield from pages(self.resource, self._selector, self._sink.restart, take)
        self._sink.finish()

    def next_watch(self) -> Request:
        self._listing = not self.resource_version
        if self._listing:
            self._sink.restart()
        seconds = FIRST_WATCH_SECONDS if self._listing else WATCH_SECONDS
        return watch(self.resource, self._selector, self.resource_version, seconds, initial=self._listing)

    def take(self, line: bytes) -> None:
        """One line of a watch. Raises KubeError when the watch is over."""
        try:
            version = self._tell(line)
        except msgspec.DecodeError as broken:
            raise UnreachableError(f"a watch is garbled: {broken}", may_have_happened=False) from None
        self._told = True
        if not self._listing:
            self.resource_version = version

    def _tell(self, line: bytes) -> str:
        kind, encoded = _open(line)
        match kind:
            case "ADDED" | "MODIFIED":
                return self._sink.upsert(encoded)
            case "DELETED":
                return self._sink.delete(encoded)
            case "BOOKMARK":
                return self._bookmark(encoded)
        raise status_error(0, bytes(encoded))

    def pause(self, trouble: KubeError | None) -> float:
        """How long to wait before asking again, after a watch that ended well (None) or with trouble."""
        told, self._told = self._told, False
        if told:
            self._backoff.reset()
        if isinstance(trouble, StatusError) and self._listing and trouble.code in (BAD_REQUEST, INVALID):
            self._streams_lists = False
            return 0.0
        gone = isinstance(trouble, StatusError) and trouble.is_gone
        if gone:
            self.resource_version = ""
        if told and (trouble is None or gone):
            return 0.0
        return self._backoff.seconds(getattr(trouble, "retry_after_seconds", None))

    def _bookmark(self, encoded: bytes | msgspec.Raw) -> str:
        metadata = _decode_bookmark(encoded).metadata
        if self._listing and metadata.annotations.get(INITIAL_END) == "true":
            self._listing = False
            self._sink.finish()
        return metadata.resource_version


def _open(line: bytes) -> tuple[str, bytes | msgspec.Raw]:
    """The type of an event and its object; as servers write it, without reading it all."""
    found = _ENVELOPE.match(line)
    if found and line.endswith(b"}"):
        return found[1].decode(), line[found.end() : -1]
    event = _decode_event(line)
    return event.type, event.object
