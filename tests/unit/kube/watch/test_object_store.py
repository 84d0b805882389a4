import json

import msgspec
from hypothesis import given, strategies as st

from jobtree.kube.watch.object_store import Change, Encoded, Patience, Store, StoredObject, Unreadable
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
    for one in objects:
        store.upsert(one)
    store.finish()
    store.drain()
    return store


def told(changes: list[Change[int]]) -> list[tuple[str | None, str | None]]:
    """Each change as the versions before and after."""
    return [
        (before.resource_version if before else None, after.resource_version if after else None)
        for before, after in changes
    ]


def test_an_object_is_found_by_uid_and_by_name() -> None:
    store = filled(encoded("a", 1, size=5))
    assert store.get("uid-a") == store.named("a", "default") == StoredObject("uid-a", "a", "default", "1", 5)
    assert store.named("a", "elsewhere") is None
    assert len(store) == 1
    assert store.synced


def test_a_second_object_under_one_name_is_another_one() -> None:
    store = filled(encoded("a", 1, "first"))
    store.upsert(encoded("a", 5, "second"))
    assert store.get("first") is None, "a name has one object, so the first is gone"
    assert told(store.drain()) == [("1", None), (None, "5")]
    store.delete(encoded("a", 3, "first"))
    held = store.named("a", "default")
    assert held is not None
    assert held.uid == "second", "the end of the first does not touch the second"
    assert store.drain() == []


def test_changes_are_put_together_for_a_slow_reader() -> None:
    store = filled(encoded("a", 1), encoded("b", 2))
    for version in range(3, 1000):
        store.upsert(encoded("a", version))
        store.upsert(encoded("passing", version, f"uid-{version}"))
        store.delete(encoded("passing", version, f"uid-{version}"))
    store.delete(encoded("b", 1001))
    assert told(store.drain()) == [("2", None), ("1", "999")]
    assert store.drain() == []


def test_what_nobody_reads_is_no_change_but_its_version_is_kept() -> None:
    store = filled(encoded("a", 1, size=5))
    store.upsert(encoded("a", 2, size=5))
    assert store.drain() == []
    held = store.get("uid-a")
    assert held is not None
    assert held.resource_version == "2"
    store.upsert(encoded("a", 3, size=6))
    store.upsert(encoded("a", 4, size=5))
    assert store.drain() == [], "there and back again"


def test_the_reader_is_woken_once_for_what_waits() -> None:
    calls: list[int] = []
    store = Store(read, wake=lambda: calls.append(1))
    store.upsert(encoded("a", 1))
    store.upsert(encoded("b", 2))
    assert len(calls) == 1
    store.drain()
    store.upsert(encoded("a", 3))
    assert len(calls) == 2


def test_what_may_wait_wakes_the_reader_later_and_what_may_not_at_once() -> None:
    calls: list[str] = []
    store = Store(
        read,
        wake=lambda: calls.append("now"),
        patience=Patience(
            lambda change: change.after is not None and change.after.value < 10, lambda: calls.append("later")
        ),
    )
    store.upsert(encoded("a", 1))
    store.upsert(encoded("b", 2))
    assert calls == ["later"], "once for all that may wait"
    store.upsert(encoded("a", 3, size=10))
    store.delete(encoded("b", 4))
    assert calls == ["later", "now"], "once for what may not"
    store.drain()
    store.upsert(encoded("c", 5))
    store.delete(encoded("a", 6))
    assert calls == ["later", "now", "later", "now"]


def test_a_new_listing_tells_only_what_is_different() -> None:
    store = filled(encoded("same", 1), encoded("changed", 2), encoded("gone", 3), encoded("remade", 4, "old"))
    store.restart()
    assert store.upsert(encoded("same", 1)) == "1"
    store.upsert(encoded("changed", 7))
    store.upsert(encoded("remade", 8, "new"))
    store.upsert(encoded("fresh", 9))
    assert store.get("uid-gone"), "until the listing is complete, nothing is known to be gone"
    store.finish()
    assert told(store.drain()) == [("4", None), ("3", None), ("2", "7"), (None, "8"), (None, "9")]


def test_a_listing_that_broke_off_is_forgotten() -> None:
    store = filled(encoded("a", 1), encoded("b", 2))
    store.restart()
    store.upsert(encoded("a", 1))
    store.restart()
    store.upsert(encoded("b", 2))
    store.finish()
    assert told(store.drain()) == [("1", None)]


def test_what_cannot_be_read_is_reported_and_left_out() -> None:
    reports: list[Unreadable] = []
    store = Store(read, reports.append)
    assert store.upsert(encoded("bug", 4)) == "4"
    assert store.upsert(encoded("bad", 5, size="many")) == "5"
    store.upsert(encoded("good", 6))
    assert [held.name for held in store] == ["good"]
    assert [(report.title, report.head.metadata.uid) for report in reports] == [
        ("default/bug", "uid-bug"),
        ("default/bad", "uid-bad"),
    ]
    assert list(store.unreadable) == ["uid-bug", "uid-bad"]
    store.upsert(encoded("bad", 7, size=1))
    store.delete(encoded("bug", 8))
    assert (store.unreadable, [held.name for held in store]) == ({}, ["good", "bad"])
    assert "ZeroDivisionError" in reports[0].why


def test_an_object_that_becomes_unreadable_is_kept_as_it_was() -> None:
    store = filled(encoded("a", 1, size=5))
    store.restart()
    store.upsert(encoded("a", 2, size="many"))
    store.finish()
    held = store.get("uid-a")
    assert held is not None
    assert (held.resource_version, held.value) == ("1", 5)


def test_what_becomes_unreadable_still_follows_its_version_where_that_can_be_told() -> None:
    store = Store(read, restamp=lambda known, _: known)
    store.upsert(encoded("a", 1, size=5))
    store.apply_response(encoded("a", 2, size="many"))
    held = store.get("uid-a")
    assert held is not None
    assert (held.resource_version, held.value, list(store.unreadable)) == ("2", 5, ["uid-a"])
    store.restart()
    store.finish()
    assert (store.unreadable, len(store)) == ({}, 0), "a listing that does not name it ends it"


def test_the_answer_to_a_write_is_seen_before_the_watch_brings_it() -> None:
    store = filled(encoded("a", 1))
    store.apply_response(encoded("a", 5))
    store.upsert(encoded("a", 3))
    assert told(store.drain()) == [("1", "5")], "what was overtaken is not news"
    store.upsert(encoded("a", 5))
    assert store.drain() == []
    store.upsert(encoded("a", 6))
    assert told(store.drain()) == [("5", "6")]


def test_what_is_known_already_is_not_read_again() -> None:
    seen: list[str] = []

    def reading(one: Encoded) -> StoredObject[int]:
        seen.append(msgspec.json.decode(one)["metadata"]["resourceVersion"])
        return read(one)

    store = Store(reading)
    store.upsert(encoded("a", 1))
    store.apply_response(encoded("a", 5))
    for echo in (3, 5, 6):
        store.upsert(encoded("a", echo))
    assert seen == ["1", "5", "6"]


def test_a_late_answer_brings_nothing_back() -> None:
    store = filled(encoded("a", 1))
    store.delete(encoded("a", 4))
    store.upsert(encoded("b", 9, "second"))
    store.drain()
    store.apply_response(encoded("a", 2))
    store.apply_response(encoded("b", 8, "first"))
    assert store.drain() == []
    assert store.get("uid-a") is None


def test_what_was_just_made_survives_a_listing_from_before() -> None:
    store = filled()
    store.restart()
    store.apply_response(encoded("a", 5))
    store.finish()
    assert store.get("uid-a") is not None


def test_a_cluster_restored_from_a_backup_counts_backwards() -> None:
    store = filled(encoded("a", 50))
    store.apply_response(encoded("a", 60))
    store.restart()
    store.upsert(encoded("a", 7))
    store.finish()
    held = store.get("uid-a")
    assert held is not None
    assert held.resource_version == "7"


steps = st.lists(
    st.tuples(st.sampled_from(["put", "delete", "drain"]), st.sampled_from("abc"), st.integers(0, 2)),
    max_size=40,
)


@given(steps)
def test_a_reader_that_only_drains_ends_up_with_what_is_there(history: list[tuple[str, str, int]]) -> None:
    store, copy = Store(read), dict[str, StoredObject[int]]()

    def catch_up() -> None:
        for before, after in store.drain():
            either = after or before
            assert either is not None
            assert copy.get(either.uid) == before, "before is what the reader saw last"
            copy.pop(either.uid, None)
            if after is not None:
                assert all(
                    (one.namespace, one.name) != (after.namespace, after.name) for one in copy.values()
                )
                copy[after.uid] = after

    for version, (step, name, life) in enumerate(history, start=1):
        if step == "put":
            store.upsert(encoded(name, version, f"{name}{life}"))
        elif step == "delete":
            store.delete(encoded(name, version, f"{name}{life}"))
        else:
            catch_up()
    catch_up()
    assert copy == {held.uid: held for held in store}
