import json

import msgspec
from hypothesis import given, strategies as st

from jobtree.kube.watch.object_store import Change, DeferredWake, Encoded, Store, StoredObject, Unreadable
from tests.unit.kube.server import thing


def read(encoded: Encoded) -> StoredObject[int]:
    document = msgspec.json.decode(encoded)
    metadata = document["metadata"]
    if metadata["name"] == "bug":
        raise ZeroDivisionError
    return StoredObject(
        metadata["uid"],
        metadata["name"],
        metadata["namespace"],
        metadata["resourceVersion"],
        int(document["size"]),
    )


def encoded(name: str, version: int, uid: str = "", size: object = None) -> bytes:
    return json.dumps(thing(name, version, uid, size=version if size is None else size)).encode()


def filled(*objects: bytes) -> Store[int]:
    store = Store(read)
    store.restart()
    for stored in objects:
        store.upsert(stored)
    store.finish()
    store.drain()
    return store


def versions_of(changes: list[Change[int]]) -> list[tuple[str | None, str | None]]:
    """The versions before and after each change."""
    return [
        (before.resource_version if before else None, after.resource_version if after else None)
        for before, after in changes
    ]


def test_object_is_found_by_uid_and_by_name() -> None:
    store = filled(encoded("a", 1, size=5))
    assert store.get("uid-a") == store.named("a", "default") == StoredObject("uid-a", "a", "default", "1", 5)
    assert store.named("a", "elsewhere") is None
    assert len(store) == 1
    assert store.synced


def test_second_object_of_a_name_replaces_the_first() -> None:
    store = filled(encoded("a", 1, "first"))
    store.upsert(encoded("a", 5, "second"))
    assert store.get("first") is None, "a name has one object, so the first is gone"
    assert versions_of(store.drain()) == [("1", None), (None, "5")]
    store.delete(encoded("a", 3, "first"))
    stored = store.named("a", "default")
    assert stored is not None
    assert stored.uid == "second", "the deletion of the first does not change the second"
    assert store.drain() == []


def test_drain_returns_one_change_per_object() -> None:
    store = filled(encoded("a", 1), encoded("b", 2))
    for version in range(3, 1000):
        store.upsert(encoded("a", version))
        store.upsert(encoded("passing", version, f"uid-{version}"))
        store.delete(encoded("passing", version, f"uid-{version}"))
    store.delete(encoded("b", 1001))
    assert versions_of(store.drain()) == [("2", None), ("1", "999")]
    assert store.drain() == []


def test_object_with_an_equal_value_has_no_change_but_its_new_version() -> None:
    store = filled(encoded("a", 1, size=5))
    store.upsert(encoded("a", 2, size=5))
    assert store.drain() == []
    stored = store.get("uid-a")
    assert stored is not None
    assert stored.resource_version == "2"
    store.upsert(encoded("a", 3, size=6))
    store.upsert(encoded("a", 4, size=5))
    assert store.drain() == [], "the value is what the reader got last"


def test_reader_is_woken_once_until_it_drains() -> None:
    calls: list[int] = []
    store = Store(read, wake=lambda: calls.append(1))
    store.upsert(encoded("a", 1))
    store.upsert(encoded("b", 2))
    assert len(calls) == 1
    store.drain()
    store.upsert(encoded("a", 3))
    assert len(calls) == 2


def test_change_that_may_wait_wakes_the_reader_later() -> None:
    calls: list[str] = []
    store = Store(
        read,
        wake=lambda: calls.append("now"),
        deferred_wake=DeferredWake(
            lambda change: change.after is not None and change.after.value < 10, lambda: calls.append("later")
        ),
    )
    store.upsert(encoded("a", 1))
    store.upsert(encoded("b", 2))
    assert calls == ["later"], "once for all changes that may wait"
    store.upsert(encoded("a", 3, size=10))
    store.delete(encoded("b", 4))
    assert calls == ["later", "now"], "once for all changes that may not wait"
    store.drain()
    store.upsert(encoded("c", 5))
    store.delete(encoded("a", 6))
    assert calls == ["later", "now", "later", "now"]


def test_listing_adds_changes_only_for_differences() -> None:
    store = filled(encoded("same", 1), encoded("changed", 2), encoded("gone", 3), encoded("remade", 4, "old"))
    store.restart()
    assert store.upsert(encoded("same", 1)) == "1"
    store.upsert(encoded("changed", 7))
    store.upsert(encoded("remade", 8, "new"))
    store.upsert(encoded("fresh", 9))
    assert store.get("uid-gone"), "nothing is removed before the listing is complete"
    store.finish()
    assert versions_of(store.drain()) == [("4", None), ("3", None), ("2", "7"), (None, "8"), (None, "9")]


def test_listing_begins_again_when_it_broke_off() -> None:
    store = filled(encoded("a", 1), encoded("b", 2))
    store.restart()
    store.upsert(encoded("a", 1))
    store.restart()
    store.upsert(encoded("b", 2))
    store.finish()
    assert versions_of(store.drain()) == [("1", None)]


def test_unreadable_object_is_reported_and_not_stored() -> None:
    reports: list[Unreadable] = []
    store = Store(read, reports.append)
    assert store.upsert(encoded("bug", 4)) == "4"
    assert store.upsert(encoded("bad", 5, size="many")) == "5"
    store.upsert(encoded("good", 6))
    assert [stored.name for stored in store] == ["good"]
    assert [(report.title, report.head.metadata.uid) for report in reports] == [
        ("default/bug", "uid-bug"),
        ("default/bad", "uid-bad"),
    ]
    assert list(store.unreadable) == ["uid-bug", "uid-bad"]
    store.upsert(encoded("bad", 7, size=1))
    store.delete(encoded("bug", 8))
    assert (store.unreadable, [stored.name for stored in store]) == ({}, ["good", "bad"])
    assert "ZeroDivisionError" in reports[0].why


def test_object_stays_as_it_was_when_it_becomes_unreadable() -> None:
    store = filled(encoded("a", 1, size=5))
    store.restart()
    store.upsert(encoded("a", 2, size="many"))
    store.finish()
    stored = store.get("uid-a")
    assert stored is not None
    assert (stored.resource_version, stored.value) == ("1", 5)


def test_unreadable_object_gets_its_new_version_with_restamp() -> None:
    store = Store(read, restamp=lambda value, _: value)
    store.upsert(encoded("a", 1, size=5))
    store.apply_response(encoded("a", 2, size="many"))
    stored = store.get("uid-a")
    assert stored is not None
    assert (stored.resource_version, stored.value, list(store.unreadable)) == ("2", 5, ["uid-a"])
    store.restart()
    store.finish()
    assert (store.unreadable, len(store)) == ({}, 0), "the listing does not contain it"


def test_response_to_a_write_is_applied_before_the_watch_sends_it() -> None:
    store = filled(encoded("a", 1))
    store.apply_response(encoded("a", 5))
    store.upsert(encoded("a", 3))
    assert versions_of(store.drain()) == [("1", "5")], "version 3 is older than the response"
    store.upsert(encoded("a", 5))
    assert store.drain() == []
    store.upsert(encoded("a", 6))
    assert versions_of(store.drain()) == [("5", "6")]


def test_known_version_is_not_decoded_again() -> None:
    decoded_versions: list[str] = []

    def decode(document: Encoded) -> StoredObject[int]:
        decoded_versions.append(msgspec.json.decode(document)["metadata"]["resourceVersion"])
        return read(document)

    store = Store(decode)
    store.upsert(encoded("a", 1))
    store.apply_response(encoded("a", 5))
    for version in (3, 5, 6):
        store.upsert(encoded("a", version))
    assert decoded_versions == ["1", "5", "6"]


def test_late_response_does_not_restore_a_deleted_object() -> None:
    store = filled(encoded("a", 1))
    store.delete(encoded("a", 4))
    store.upsert(encoded("b", 9, "second"))
    store.drain()
    store.apply_response(encoded("a", 2))
    store.apply_response(encoded("b", 8, "first"))
    assert store.drain() == []
    assert store.get("uid-a") is None


def test_object_from_a_response_stays_when_an_older_listing_lacks_it() -> None:
    store = filled()
    store.restart()
    store.apply_response(encoded("a", 5))
    store.finish()
    assert store.get("uid-a") is not None


def test_listing_replaces_newer_versions_when_the_cluster_was_restored() -> None:
    store = filled(encoded("a", 50))
    store.apply_response(encoded("a", 60))
    store.restart()
    store.upsert(encoded("a", 7))
    store.finish()
    stored = store.get("uid-a")
    assert stored is not None
    assert stored.resource_version == "7"


steps = st.lists(
    st.tuples(st.sampled_from(["put", "delete", "drain"]), st.sampled_from("abc"), st.integers(0, 2)),
    max_size=40,
)


@given(steps)
def test_reader_that_only_drains_has_all_stored_objects(history: list[tuple[str, str, int]]) -> None:
    store, copy = Store(read), dict[str, StoredObject[int]]()

    def catch_up() -> None:
        for before, after in store.drain():
            changed = after or before
            assert changed is not None
            assert copy.get(changed.uid) == before, "before is what the reader got last"
            copy.pop(changed.uid, None)
            if after is not None:
                names = [(stored.namespace, stored.name) for stored in copy.values()]
                assert (after.namespace, after.name) not in names
                copy[after.uid] = after

    for version, (step, name, life) in enumerate(history, start=1):
        if step == "put":
            store.upsert(encoded(name, version, f"{name}{life}"))
        elif step == "delete":
            store.delete(encoded(name, version, f"{name}{life}"))
        else:
            catch_up()
    catch_up()
    assert copy == {stored.uid: stored for stored in store}
