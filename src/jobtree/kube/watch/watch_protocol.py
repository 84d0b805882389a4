"""The protocol of list and watch for one kind: the next request and what each response means, without I/O.

The first watch asks for all objects (``sendInitialEvents``); a server that refuses that is asked for a paged
list. Bookmarks mark progress, and after each end of the connection the next watch continues from the last
version. When the server has forgotten that version (410), everything is listed again, and the sink finds what
was missed. The version of a listing is used only when the listing is complete.
"""

import re
from typing import Protocol

import msgspec

from jobtree.kube.http.api_errors import INVALID, KubeError, StatusError, UnreachableError, status_error
from jobtree.kube.http.api_requests import EVERYTHING, Request, Selector, watch
from jobtree.kube.http.api_resources import Resource
from jobtree.kube.http.backoff import Backoff
from jobtree.kube.http.list_pages import RequestSequence, pages

BAD_REQUEST = 400
SILENCE_SECONDS = 70.0
WATCH_SECONDS = 60
FIRST_WATCH_SECONDS = 600
"""Bookmarks come every minute, and a watch ends after one: silence of more than 70 s is a dead connection.
The first watch lasts longer, since the server counts the time in which it sends all objects."""


class Sink(Protocol):
    """The receiver of objects: ``jobtree.kube.watch.object_store`` says what each method means."""

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
        self._progressed = False  # since the last pause

    @property
    def must_list(self) -> bool:
        """Whether a paged list comes before the next watch."""
        return not self.resource_version and not self._streams_lists

    def list_pages(self) -> RequestSequence[None]:
        def upsert_all(items: list[msgspec.Raw]) -> None:
            for item in items:
                self._sink.upsert(item)

        self.resource_version = yield from pages(
            self.resource, self._selector, self._sink.restart, upsert_all
        )
        self._sink.finish()

    def next_watch(self) -> Request:
        self._listing = not self.resource_version
        if self._listing:
            self._sink.restart()
        seconds = FIRST_WATCH_SECONDS if self._listing else WATCH_SECONDS
        return watch(self.resource, self._selector, self.resource_version, seconds, initial=self._listing)

    def apply_line(self, line: bytes) -> None:
        """Passes one line of a watch to the sink. Raises KubeError when the watch is over."""
        try:
            version = self._apply_event(line)
        except msgspec.DecodeError as error:
            raise UnreachableError(
                f"the server sent an invalid watch event: {error}", may_have_happened=False
            ) from None
        self._progressed = True
        if not self._listing:
            self.resource_version = version

    def _apply_event(self, line: bytes) -> str:
        kind, encoded = _split_event(line)
        match kind:
            case "ADDED" | "MODIFIED":
                return self._sink.upsert(encoded)
            case "DELETED":
                return self._sink.delete(encoded)
            case "BOOKMARK":
                return self._apply_bookmark(encoded)
        raise status_error(0, bytes(encoded))

    def pause(self, error: KubeError | None) -> float:
        """Returns the seconds to wait after a watch that ended normally (None) or with an error."""
        progressed, self._progressed = self._progressed, False
        if progressed:
            self._backoff.reset()
        if isinstance(error, StatusError) and self._listing and error.code in (BAD_REQUEST, INVALID):
            self._streams_lists = False
            return 0.0
        is_gone = isinstance(error, StatusError) and error.is_gone
        if is_gone:
            self.resource_version = ""
        if progressed and (error is None or is_gone):
            return 0.0
        return self._backoff.seconds(getattr(error, "retry_after_seconds", None))

    def _apply_bookmark(self, encoded: bytes | msgspec.Raw) -> str:
        metadata = _decode_bookmark(encoded).metadata
        if self._listing and metadata.annotations.get(INITIAL_END) == "true":
            self._listing = False
            self._sink.finish()
        return metadata.resource_version


def _split_event(line: bytes) -> tuple[str, bytes | msgspec.Raw]:
    """Returns the type and the object of an event, without parsing it if it has the usual form."""
    match = _ENVELOPE.match(line)
    if match and line.endswith(b"}"):
        return match[1].decode(), line[match.end() : -1]
    event = _decode_event(line)
    return event.type, event.object
