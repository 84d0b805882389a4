"""Old leases leave for the archive, whatever dies on the way: nothing is lost, nothing counts twice."""

import os
from pathlib import Path

import pytest

from jobtree.api.schema.quantities import HOUR, format_micro
from jobtree.archive.archive_directory import ArchiveDirectory
from jobtree.archive.archive_reader import read_archive
from jobtree.kube.http.api_errors import StatusError, UnreachableError
from jobtree.kube.http.api_resources import BUDGETS, LEASES, RUNS
from tests.unit.manager.cluster import Body, Fault, Manager, Server, StoppedError
from tests.unit.manager.stage import POLICY, finish_pods, put_budget, put_nodes, put_policy, put_run


@pytest.fixture
def archive(tmp_path: Path) -> ArchiveDirectory:
    return ArchiveDirectory(str(tmp_path / "archive"))


def begin(server: Server) -> None:
    """A Run that ends, one that was deleted, and one that goes on with another payer's money."""
    put_policy(server, f"{POLICY}leaseRetention: 30m\n")
    put_nodes(server, "nv-a", 4)
    put_budget(server, "org", 64, maxGPUHours=1000)
    put_run(server, "done", "org", 8)
    put_run(server, "deleted", "org", 8)
    put_run(server, "elastic", "org", 16, malleable=(8, 16, 8), rendezvous=True)


def shrink(server: Server) -> None:
    server.change(
        RUNS.path("ns", "elastic"), {"spec": {"malleable": {"desiredTotalGPUs": 8}}}, "", merge=True
    )


def live(server: Server, manager: Manager) -> None:
    """Until leases of all three have ended, but none is old enough to leave."""
    manager.settle()
    server.now += 10 * 60_000
    finish_pods(server, "done")
    server.delete(RUNS.path("ns", "deleted"))
    shrink(server)
    manager.settle()


def grown_old(archive: ArchiveDirectory | None) -> tuple[Server, Manager]:
    server = Server()
    begin(server)
    manager = Manager(server, archive=archive)
    live(server, manager)
    server.now += HOUR
    return server, manager


def sums(server: Server) -> dict[str, object]:
    """What a manager knows that begins now and has no archive."""
    server.watchers = []
    return known_by(Manager(server))


def known_by(manager: Manager) -> dict[str, object]:
    """All that limits count and statuses tell."""
    world = manager.model.world
    at = world.now
    envelopes = {
        "/".join(key): (
            one.account.used(at),
            one.lending_account.used(at),
            {name: tally.used(at) for name, tally in one.by_class.items()},
        )
        for key, one in world.budgets.envelopes.items()
    }
    runs = {
        key[1]: (
            state.usage.closed_charge,
            {payer: tally.used(at) for payer, tally in state.usage.by_payer.items()},
        )
        for key, state in world.runs.items()
    }
    return {**envelopes, **runs}


def archived(archive: ArchiveDirectory) -> list[str]:
    found = read_archive(archive)
    assert found.problems == []
    return sorted(body["metadata"]["name"] for body in found.bodies)


def names(bodies: list[Body]) -> list[str]:
    return sorted(body["metadata"]["name"] for body in bodies)


def ended(server: Server) -> list[str]:
    return names([lease for lease in server.all(LEASES) if lease.get("status", {}).get("end")])


def expected() -> tuple[list[str], dict[str, object]]:
    """Closed leases and all sums of a cluster that archives nothing."""
    server, manager = grown_old(None)
    manager.settle()
    return ended(server), sums(server)


def check_end(server: Server, manager: Manager, archive: ArchiveDirectory) -> None:
    """In the end old leases are in the archive, none is in the cluster, and sums are what they were."""
    manager.settle()
    closed, known = expected()
    assert len(closed) == 3
    assert ended(server) == []
    assert archived(archive) == closed
    assert manager.violations == []
    assert known_by(manager) == known
    assert sums(server) == known


def test_old_leases_leave_and_their_hours_stay(archive: ArchiveDirectory) -> None:
    server, manager = grown_old(archive)
    check_end(server, manager, archive)


def test_a_manager_that_begins_anew_without_the_archive_knows_every_hour(archive: ArchiveDirectory) -> None:
    server, manager = grown_old(archive)
    manager.settle()
    again = Manager(server)
    again.settle()
    for key, envelope in manager.model.world.budgets.envelopes.items():
        assert (
            again.model.world.budgets.envelopes[key].account.closed_usage == envelope.account.closed_usage > 0
        )
    for key, state in manager.model.world.runs.items():
        assert again.model.world.runs[key].usage.closed_charge == state.usage.closed_charge
    assert again.violations == []


def test_without_an_archive_nothing_leaves() -> None:
    server, manager = grown_old(None)
    server.now += 10 * HOUR
    manager.settle()
    assert len(ended(server)) == 3


def test_leases_that_are_not_old_enough_stay(archive: ArchiveDirectory) -> None:
    server = Server()
    begin(server)
    manager = Manager(server, archive=archive)
    live(server, manager)
    server.now += 30 * 60_000 - 1
    manager.settle()
    assert len(ended(server)) == 3
    server.now += 1
    manager.settle()
    assert ended(server) == []


def archives_despite_crash(directory: Path, writes: int) -> bool:
    """Kills a manager after so many writes, if it makes that many; the next manager finishes."""
    archive = ArchiveDirectory(str(directory / f"archive-{writes}"))
    server, _ = grown_old(archive)
    try:
        Manager(server, writes, archive).settle()
    except StoppedError:
        check_end(server, Manager(server, archive=archive), archive)
        return True
    return False


def archive_despite_fault(directory: Path, number: int, *, after: bool) -> None:
    """Makes the connection fail at one write, before or after it takes effect."""
    archive = ArchiveDirectory(str(directory / f"archive-{number}"))
    server, manager = grown_old(archive)
    server.writes = 0
    server.fault = Fault(number, UnreachableError("cut off", may_have_happened=True), after=after)
    manager.settle()
    check_end(server, manager, archive)


@pytest.mark.parametrize("writes", [2, 4])
def test_no_lease_is_lost_or_counted_twice_when_the_manager_dies(tmp_path: Path, writes: int) -> None:
    assert archives_despite_crash(tmp_path, writes)


@pytest.mark.parametrize("after", [False, True])
def test_no_lease_is_lost_or_counted_twice_when_a_write_fails(tmp_path: Path, after: bool) -> None:
    archive_despite_fault(tmp_path, 3, after=after)


def test_an_archive_that_is_full_keeps_every_lease_and_says_so(
    archive: ArchiveDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, manager = grown_old(archive)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        manager.settle()
    assert len(ended(server)) == 3
    assert b"jobtree_archive_failing 1.0" in manager.metrics.page()
    server.now += 60_000
    manager.settle()
    assert ended(server) == []
    assert b"jobtree_archive_failing 0.0" in manager.metrics.page()


def test_a_lease_whose_carrying_is_refused_stays(
    archive: ArchiveDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, manager = grown_old(archive)
    change = server.change

    def refusing(path: str, body: Body, subresource: str, *, merge: bool) -> Body:
        if "/budgets/" in path:
            raise StatusError(403, "Forbidden", "not today")
        return change(path, body, subresource, merge=merge)

    with monkeypatch.context() as patch:
        patch.setattr(server, "change", refusing)
        for _ in range(5):
            manager.turn()
    assert len(ended(server)) == 3
    assert len(archived(archive)) == 3
    check_end(server, manager, archive)


def test_leases_of_a_budget_that_is_gone_leave_too(archive: ArchiveDirectory) -> None:
    server, manager = grown_old(archive)
    old = ended(server)
    server.delete(BUDGETS.path(name="org"))
    manager.settle()
    assert not set(old) & set(ended(server))
    assert archived(archive) == old


def test_a_budget_made_anew_while_the_manager_lives_is_told_what_it_carries(
    archive: ArchiveDirectory,
) -> None:
    server, manager = grown_old(archive)
    manager.settle()
    carried = server.all(BUDGETS)[0]["status"]["carried"]["envelopes"]
    server.delete(BUDGETS.path(name="org"))
    put_budget(server, "org", 64, maxGPUHours=1000)
    manager.settle()
    assert server.all(BUDGETS)[0]["status"]["carried"]["envelopes"] == carried
    assert manager.violations == []


def test_a_closed_lease_that_somebody_deletes_still_counts() -> None:
    server, manager = grown_old(None)
    (lease,) = (one for one in server.all(LEASES) if one["spec"]["runRef"]["name"] == "done")
    used = 8 * 10 * 60
    server.delete(LEASES.path(name=lease["metadata"]["name"]))
    manager.settle()
    assert [one for one in manager.violations if "deleted while its hours counted" in one]
    (carried,) = server.all(BUDGETS)[0]["status"]["carried"]["envelopes"]
    assert carried["gpuSeconds"]["owned"] == format_micro(used * 1_000_000)
    again = Manager(server)
    again.settle()
    assert again.violations == []
    key = ("org", carried["name"])
    world, known = again.model.world, manager.model.world
    assert (
        world.budgets.envelopes[key].account.closed_usage == known.budgets.envelopes[key].account.closed_usage
    )


def test_what_another_manager_set_aside_is_read_anew(archive: ArchiveDirectory) -> None:
    """A new leader saw the leases gone before it saw who carries them: what others wrote is not undone."""
    server, _ = grown_old(archive)
    stale = {path: body for path, body in server.objects.items() if body["kind"] in ("Budget", "Run")}
    Manager(server, archive=archive).settle()
    late = {path: server.objects[path] for path in stale}
    server.objects |= stale
    standby = Manager(server)
    for path, body in late.items():
        server.objects[path] = body
        standby._watch(path, body, there=True)
    put_run(server, "last", "org", 8)
    standby.settle()
    told = server.all(BUDGETS)[0]["status"]["carried"]["envelopes"]
    assert told == late[BUDGETS.path(name="org")]["status"]["carried"]["envelopes"]
    assert {**sums(server), "last": None} == {**expected()[1], "last": None}
