"""What was seen of one kind, by UID, and what has changed since the reader last looked.

An object is its UID: one that was deleted and made again under the same name is another one, and a change of
it never touches the first. Names are an index: the last object to take a name has it.

Changes wait here until ``drain``, one per object: however long the reader takes, and however often an object
changes meanwhile, it finds what it last saw and what is there now. So the wait is bounded by the number of
objects, what came and went unseen is never mentioned, and neither is what changes only in parts that nobody
reads (a node's heartbeat): the version is then found here, not in a change. Some changes are worth knowing
and ask for nothing (a pod runs, as it was told to): ``Patience`` says which, and the reader is woken later.

A full listing is told as ``restart``, ``upsert`` for all there is, ``finish``: what did not come up is gone,
and its deletion, which no watch told, is a change like any other. What cannot be decoded is reported and left
out, and found in ``unreadable``; an object that was readable before stays as it was last read, since
forgetting a lease would free what it holds. Where ``restamp`` is given, it follows the object's metadata all
the same, so that it can be written to, and its end is seen.
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
    """An object as it was last seen; ``value`` is the part of it that Jobtree reads."""

    uid: str
    name: str
    namespace: str
    resource_version: str
    value: T


class Change(NamedTuple, Generic[T]):
    """``before`` is what the reader saw last, ``after`` what is there now; None: nothing."""

    before: StoredObject[T] | None
    after: StoredObject[T] | None


class Patience(NamedTuple, Generic[T]):
    """Which changes may wait, and who is to be called when the first of them does."""

    may_wait: Callable[[Change[T]], bool]
    wake_later: Callable[[], None]


class Unreadable(NamedTuple):
    """An object that is left out, and why."""

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


class _Standing(msgspec.Struct):
    phase: str = ""


class ObjectHead(msgspec.Struct):
    """The part of any object that says which one it is, and how it stands."""

    metadata: _Metadata
    status: _Standing | None = None

    @property
    def phase(self) -> str:
        return self.status.phase if self.status is not None else ""


_decode_head = msgspec.json.Decoder(ObjectHead).decode


def _nothing(*_: object) -> None:
    """For those who do not want to be told."""


class Store(Generic[T]):
    """One kind. Used from one thread; ``wake`` is called when the first change comes that may not wait."""

    def __init__(
        self,
        decode: Callable[[Encoded], StoredObject[T]],
        unreadable: Callable[[Unreadable], None] = _nothing,
        wake: Callable[[], None] = _nothing,
        restamp: Callable[[T, Encoded], T] | None = None,
        patience: Patience[T] | None = None,
    ) -> None:
        self.synced = False
        self.unreadable: dict[str, Unreadable] = {}  # what cannot be read now, by UID
        self._restamp = restamp
        self._decode = decode
        self._report = unreadable
        self._wake = wake
        self._patience = patience
        self._woken = False  # since the reader last looked
        self._held: dict[str, StoredObject[T]] = {}
        self._names: dict[tuple[str, str], str] = {}
        self._changes: dict[str, Change[T]] = {}
        self._unseen: set[str] = set()
        self._learned: set[str] = set()
        self._deleted: OrderedDict[str, None] = OrderedDict()

    # --- reading

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[StoredObject[T]]:
        return iter(self._held.values())

    def get(self, uid: str) -> StoredObject[T] | None:
        return self._held.get(uid)

    def named(self, name: str, namespace: str = "") -> StoredObject[T] | None:
        return self._held.get(self._names.get((namespace, name), ""))

    def drain(self) -> list[Change[T]]:
        """All changes that wait, what is gone first: a name is free before it is taken again."""
        changes, self._changes, self._woken = list(self._changes.values()), {}, False
        return sorted(changes, key=lambda change: change.after is not None)

    # --- what a watch tells

    def restart(self) -> None:
        """A full listing begins."""
        self._unseen = {*self._held, *self.unreadable}
        self._learned.clear()

    def upsert(self, encoded: Encoded) -> str:
        """An object is there, like this. Gives its resourceVersion."""
        head = _decode_head(encoded)
        metadata = head.metadata
        self._unseen.discard(metadata.uid)
        if self._is_news(metadata):
            try:
                self._put(self._decode(encoded))
                self.unreadable.pop(metadata.uid, None)
            except Exception as broken:  # noqa: BLE001  whatever a decoder trips over must not stop the stream
                self._leave_out(head, encoded, broken)
        return metadata.resource_version

    def delete(self, encoded: Encoded) -> str:
        """An object is gone. Gives the resourceVersion of its end."""
        metadata = _decode_head(encoded).metadata
        self._unseen.discard(metadata.uid)
        self._remove(metadata.uid)
        return metadata.resource_version

    def finish(self) -> None:
        """The full listing is complete."""
        for uid in sorted(self._unseen):
            self._remove(uid)
        self._unseen.clear()
        self.synced = True

    # --- what our own writes tell

    def apply_response(self, encoded: Encoded) -> str:
        """The server's answer to a write, which the watch will bring too. Ignored unless it is news.

        Gives its resourceVersion, which may be older than what is held: somebody may have been quick.
        """
        try:
            held = self._decode(encoded)
        except Exception as broken:  # noqa: BLE001  as with what a watch tells
            head = _decode_head(encoded)
            self._leave_out(head, encoded, broken)
            return head.metadata.resource_version
        known = self._held.get(held.uid) or self.named(held.name, held.namespace)
        is_news = known is None or _newer(held.resource_version, known.resource_version)
        if is_news and held.uid not in self._deleted:
            self._learned.add(held.uid)
            self._put(held)
        return held.resource_version

    # --- parts

    def _is_news(self, told: _Metadata) -> bool:
        """Neither what is held already, nor what a write of our own has overtaken: that is not even read."""
        known = self._held.get(told.uid)
        if known is None:
            return True
        if told.uid in self._learned:
            if _newer(known.resource_version, told.resource_version):
                return False
            self._learned.discard(told.uid)
        return told.resource_version != known.resource_version

    def _put(self, held: StoredObject[T]) -> None:
        key = (held.namespace, held.name)
        other = self._names.get(key, held.uid)
        if other != held.uid:
            self._remove(other)
        self._names[key] = held.uid
        self._note(held.uid, self._held.get(held.uid), held)
        self._held[held.uid] = held

    def _remove(self, uid: str) -> None:
        self._learned.discard(uid)
        self.unreadable.pop(uid, None)
        self._deleted[uid] = None
        if len(self._deleted) > REMEMBERED_DELETIONS:
            self._deleted.popitem(last=False)
        held = self._held.pop(uid, None)
        if held is None:
            return
        del self._names[held.namespace, held.name]
        self._note(uid, held, None)

    def _note(self, uid: str, before: StoredObject[T] | None, after: StoredObject[T] | None) -> None:
        waiting = self._changes.get(uid)
        if waiting is not None:
            before = waiting.before
        if _same(before, after):
            self._changes.pop(uid, None)
            return
        change = Change(before, after)
        self._call_for(change)
        self._changes[uid] = change

    def _call_for(self, change: Change[T]) -> None:
        """The reader is called once for what waits, and once more if something must not."""
        if self._patience is not None and self._patience.may_wait(change):
            if not self._changes:
                self._patience.wake_later()
        elif not self._woken:
            self._woken = True
            self._wake()

    def _leave_out(self, head: ObjectHead, encoded: Encoded, broken: Exception) -> None:
        metadata = head.metadata
        why = str(broken) if isinstance(broken, (InputError, msgspec.MsgspecError)) else repr(broken)
        before = self.unreadable.get(metadata.uid)
        self.unreadable[metadata.uid] = Unreadable(head, why)
        if before is None or before.why != why:
            self._report(self.unreadable[metadata.uid])
        known = self._held.get(metadata.uid)
        if known is not None and self._restamp is not None:
            with suppress(msgspec.ValidationError):
                value = self._restamp(known.value, encoded)
                self._put(
                    StoredObject(known.uid, known.name, known.namespace, metadata.resource_version, value)
                )
        self._wake()


def _same(before: StoredObject[T] | None, after: StoredObject[T] | None) -> bool:
    if before is None or after is None:
        return before is after
    return before.value == after.value


def _newer(one: str, other: str) -> bool:
    """Versions of one cluster are the counter of its database."""
    return int(one) > int(other)
