"""Keeps the objects of one kind by UID, and what has changed since the reader last called ``drain``.

An object is identified by its UID. An object that was deleted and created again under the same name is
another object, and an event about it never changes the first. A name refers to the last object that took it.

There is one change per object: what the reader got last and what is there now. So the number of changes is at
most the number of objects. There is no change for an object that came and went in between, nor for a change
of fields that Jobtree does not read (a node's heartbeat); the version of the object is updated all the same.
A change that needs no action (a pod starts to run) may wait: ``DeferredWake`` says which, and the reader is
woken later.

A full listing is ``restart``, ``upsert`` for each object, ``finish``. Objects that it does not contain are
deleted, and that is a change like any other. An object that cannot be decoded is reported and kept in
``unreadable``. If it could be decoded before, it stays as it was decoded last: a lease that is dropped would
free its GPUs. With ``restamp`` its metadata is updated even then, so that Jobtree can write to the object and
sees its deletion.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

import msgspec

from jobtree.api.schema.problems import InputError

T = TypeVar("T")
Encoded = bytes | msgspec.Raw
REMEMBERED_DELETIONS = 10_000


class StoredObject(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """An object as it was last decoded; ``value`` is the part of it that Jobtree reads."""

    uid: str
    name: str
    namespace: str
    resource_version: str
    value: T


class Change(NamedTuple, Generic[T]):
    """What the reader got last (``before``) and what is there now (``after``); None: no object."""

    before: StoredObject[T] | None
    after: StoredObject[T] | None


class DeferredWake(NamedTuple, Generic[T]):
    """Which changes may wait, and what to call when the first of them begins to wait."""

    may_wait: Callable[[Change[T]], bool]
    wake_later: Callable[[], None]


class Unreadable(NamedTuple):
    """An object that cannot be decoded, and why."""

    head: "ObjectHead"
    why: str

    @property
    def title(self) -> str:
        return f"{self.head.metadata.namespace}/{self.head.metadata.name}".lstrip("/")


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str = ""
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None
    finalizers: tuple[str, ...] = ()


class _StatusHead(msgspec.Struct):
    phase: str = ""


class ObjectHead(msgspec.Struct):
    """The identity and the phase of any object."""

    metadata: _Metadata
    status: _StatusHead | None = None

    @property
    def phase(self) -> str:
        return self.status.phase if self.status is not None else ""


_decode_head = msgspec.json.Decoder(ObjectHead).decode


def _ignore(*_: object) -> None:
    """Does nothing: the default of callbacks."""


class Store(Generic[T]):
    """The objects of one kind, for one thread. ``wake`` is called at the first change that may not wait."""

    def __init__(
        self,
        decode: Callable[[Encoded], StoredObject[T]],
        unreadable: Callable[[Unreadable], None] = _ignore,
        wake: Callable[[], None] = _ignore,
        restamp: Callable[[T, Encoded], T] | None = None,
        deferred_wake: DeferredWake[T] | None = None,
    ) -> None:
        self.synced = False
        self.unreadable: dict[str, Unreadable] = {}  # objects that cannot be decoded now, by UID
        self._restamp = restamp
        self._decode = decode
        self._report = unreadable
        self._wake = wake
        self._deferred_wake = deferred_wake
        self._woken = False  # since the last drain
        self._objects: dict[str, StoredObject[T]] = {}  # by UID
        self._uids: dict[tuple[str, str], str] = {}  # by namespace and name
        self._changes: dict[str, Change[T]] = {}  # by UID
        self._unlisted: set[str] = set()  # UIDs that the current listing has not contained so far
        self._written: set[str] = set()  # UIDs whose latest version came with the response to a write
        self._deleted: OrderedDict[str, None] = OrderedDict()  # UIDs, the oldest deletion first

    # --- reading

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[StoredObject[T]]:
        return iter(self._objects.values())

    def get(self, uid: str) -> StoredObject[T] | None:
        return self._objects.get(uid)

    def named(self, name: str, namespace: str = "") -> StoredObject[T] | None:
        return self._objects.get(self._uids.get((namespace, name), ""))

    def drain(self) -> list[Change[T]]:
        """Returns and forgets all changes, deletions first: a name is free before another object takes it."""
        changes, self._changes, self._woken = list(self._changes.values()), {}, False
        return sorted(changes, key=lambda change: change.after is not None)

    # --- from a listing or a watch

    def restart(self) -> None:
        """Begins a full listing."""
        self._unlisted = {*self._objects, *self.unreadable}
        self._written.clear()

    def upsert(self, encoded: Encoded) -> str:
        """Adds or updates an object. Returns its resourceVersion."""
        head = _decode_head(encoded)
        metadata = head.metadata
        self._unlisted.discard(metadata.uid)
        if self._is_news(metadata):
            try:
                self._put(self._decode(encoded))
                self.unreadable.pop(metadata.uid, None)
            except Exception as error:  # noqa: BLE001  no error of a decoder may stop the stream
                self._put_unreadable(head, encoded, error)
        return metadata.resource_version

    def delete(self, encoded: Encoded) -> str:
        """Removes an object. Returns the resourceVersion of its deletion."""
        metadata = _decode_head(encoded).metadata
        self._unlisted.discard(metadata.uid)
        self._remove(metadata.uid)
        return metadata.resource_version

    def finish(self) -> None:
        """Ends a full listing: removes the objects that it did not contain."""
        for uid in sorted(self._unlisted):
            self._remove(uid)
        self._unlisted.clear()
        self.synced = True

    # --- from our own writes

    def apply_response(self, encoded: Encoded) -> str:
        """Adds or updates the object in the response to a write, before the watch sends it.

        Returns its resourceVersion. A version that is older than the stored one changes nothing: another
        client may have written after us.
        """
        try:
            written = self._decode(encoded)
        except Exception as error:  # noqa: BLE001  as in upsert
            head = _decode_head(encoded)
            self._put_unreadable(head, encoded, error)
            return head.metadata.resource_version
        stored = self._objects.get(written.uid) or self.named(written.name, written.namespace)
        is_news = stored is None or _newer(written.resource_version, stored.resource_version)
        if is_news and written.uid not in self._deleted:
            self._written.add(written.uid)
            self._put(written)
        return written.resource_version

    # --- parts

    def _is_news(self, received: _Metadata) -> bool:
        """Whether this version is neither the stored one nor older than our own last write."""
        stored = self._objects.get(received.uid)
        if stored is None:
            return True
        if received.uid in self._written:
            if _newer(stored.resource_version, received.resource_version):
                return False
            self._written.discard(received.uid)
        return received.resource_version != stored.resource_version

    def _put(self, stored: StoredObject[T]) -> None:
        key = (stored.namespace, stored.name)
        other_uid = self._uids.get(key, stored.uid)
        if other_uid != stored.uid:
            self._remove(other_uid)
        self._uids[key] = stored.uid
        self._record_change(stored.uid, self._objects.get(stored.uid), stored)
        self._objects[stored.uid] = stored

    def _remove(self, uid: str) -> None:
        self._written.discard(uid)
        self.unreadable.pop(uid, None)
        self._deleted[uid] = None
        if len(self._deleted) > REMEMBERED_DELETIONS:
            self._deleted.popitem(last=False)
        stored = self._objects.pop(uid, None)
        if stored is None:
            return
        del self._uids[stored.namespace, stored.name]
        self._record_change(uid, stored, None)

    def _record_change(self, uid: str, before: StoredObject[T] | None, after: StoredObject[T] | None) -> None:
        waiting = self._changes.get(uid)
        if waiting is not None:
            before = waiting.before
        if _same(before, after):
            self._changes.pop(uid, None)
            return
        change = Change(before, after)
        self._wake_reader(change)
        self._changes[uid] = change

    def _wake_reader(self, change: Change[T]) -> None:
        """Wakes the reader once, and defers that once as long as all changes may wait."""
        if self._deferred_wake is not None and self._deferred_wake.may_wait(change):
            if not self._changes:
                self._deferred_wake.wake_later()
        elif not self._woken:
            self._woken = True
            self._wake()

    def _put_unreadable(self, head: ObjectHead, encoded: Encoded, error: Exception) -> None:
        """Records that an object cannot be decoded, and reports it unless the reason is known."""
        metadata = head.metadata
        why = str(error) if isinstance(error, (InputError, msgspec.MsgspecError)) else repr(error)
        before = self.unreadable.get(metadata.uid)
        self.unreadable[metadata.uid] = Unreadable(head, why)
        if before is None or before.why != why:
            self._report(self.unreadable[metadata.uid])
        stored = self._objects.get(metadata.uid)
        if stored is not None and self._restamp is not None:
            with suppress(msgspec.ValidationError):
                value = self._restamp(stored.value, encoded)
                self._put(
                    StoredObject(stored.uid, stored.name, stored.namespace, metadata.resource_version, value)
                )
        self._wake()


def _same(before: StoredObject[T] | None, after: StoredObject[T] | None) -> bool:
    if before is None or after is None:
        return before is after
    return before.value == after.value


def _newer(version: str, other: str) -> bool:
    """Whether a version is the later one: versions of one cluster are the counter of its database."""
    return int(version) > int(other)
