"""A turn takes in a share of the new Runs, in turn by namespace, the oldest first (H4)."""

from random import Random

import msgspec

from jobtree.api.kinds.run import Run
from jobtree.kube.watch.object_store import Change, StoredObject
from jobtree.manager.cluster_view import Changes
from jobtree.manager.planner.arrivals import FIRST_SHARE, LEAST_SHARE, TURN_MS, Arrivals
from tests.unit.core.build import run, tree


def new_run(namespace: str, name: str, at: int = 0, gpus: int = 8) -> Run:
    return in_namespace(run(name, "org", gpus, at=at), namespace)


def in_namespace(run_object: Run, namespace: str) -> Run:
    uid = f"{namespace}-{run_object.metadata.name}"
    metadata = msgspec.structs.replace(run_object.metadata, namespace=namespace, uid=uid)
    return msgspec.structs.replace(run_object, metadata=metadata)


def stored(run_object: Run) -> StoredObject[Run]:
    metadata = run_object.metadata
    return StoredObject(metadata.uid, metadata.name, metadata.namespace, "1", run_object)


def changes(*runs: Run) -> Changes:
    return Changes([], [], [], [], [Change(None, stored(run_object)) for run_object in runs], [], [])


def taken(arrivals: Arrivals, *runs: Run) -> list[str]:
    return [
        f"{change.after.namespace}/{change.after.name}"
        for change in arrivals.take(changes(*runs)).runs
        if change.after is not None
    ]


def test_first_run_of_a_namespace_waits_for_no_burst_of_another() -> None:
    arrivals = Arrivals()
    burst = [new_run("burst", f"b{number:04}", number) for number in range(2000)]
    Random(1).shuffle(burst)
    assert taken(arrivals, *burst) == [f"burst/b{number:04}" for number in range(FIRST_SHARE)]
    canary = new_run("other", "canary", 5_000)
    assert taken(arrivals, canary)[:2] == [f"burst/b{FIRST_SHARE:04}", "other/canary"]
    rest = [name for _ in range(2000 // FIRST_SHARE) for name in taken(arrivals)]
    assert len(set(rest)) == 2000 - 2 * FIRST_SHARE + 1
    assert not arrivals.are_left


def test_restart_takes_in_at_once_what_was_planned_before() -> None:
    """The others come in the same order as without a restart."""
    arrivals = Arrivals()
    planned = [
        msgspec.structs.replace(
            one, status=msgspec.structs.replace(one.status, phase="Reserved", allocation=None)
        )
        for one in (new_run("burst", f"p{number:03}") for number in range(100))
    ]
    new = [new_run("burst", f"b{number:03}", number) for number in range(100)]
    names = taken(arrivals, *new, *planned)
    assert names[:100] == [f"burst/p{number:03}" for number in range(100)]
    assert names[100:] == [f"burst/b{number:03}" for number in range(FIRST_SHARE)]


def test_run_that_is_edited_or_deleted_while_it_waits() -> None:
    arrivals = Arrivals()
    burst = [new_run("burst", f"b{number:03}", number) for number in range(FIRST_SHARE + 2)]
    arrivals.take(changes(*burst))
    edited = msgspec.structs.replace(burst[-1], spec=run("x", "org", 16).spec)
    update = Change(stored(burst[-1]), stored(edited))
    removal = Change(stored(burst[-2]), None)
    *_, change = arrivals.take(changes()._replace(runs=[update, removal])).runs
    assert change == Change(None, stored(edited))
    assert not arrivals.are_left


def test_large_gangs_and_trees_use_up_the_share() -> None:
    arrivals = Arrivals()
    stages = [{"name": f"s{number}", "resources": {"totalGPUs": 0, "pods": 1}} for number in range(64)]
    large = [
        in_namespace(tree("t", "org", stages), "a"),
        new_run("b", "huge", gpus=65_536),
        new_run("c", "small"),
    ]
    assert [taken(arrivals, *large), taken(arrivals), taken(arrivals)] == [["a/t"], ["b/huge"], ["c/small"]]


def test_share_follows_the_time_that_a_turn_takes() -> None:
    """It never ends, so every Run is taken in however slow the server is."""
    arrivals = Arrivals()
    arrivals.take(changes(*(new_run("burst", f"b{number:04}", number) for number in range(1000))))
    arrivals.adapt(TURN_MS // 4)
    assert len(taken(arrivals)) == 2 * FIRST_SHARE
    for _ in range(20):
        arrivals.adapt(TURN_MS + 1)
    assert len(taken(arrivals)) == LEAST_SHARE
