"""Old leases move to the archive: none is lost or counted twice when the manager dies or a write fails."""

import os
from pathlib import Path

import pytest

from jobtree.api.schema.quantities import HOUR, format_micro
from jobtree.archive.archive_directory import ArchiveDirectory
from jobtree.archive.archive_reader import read_archive
from jobtree.kube.http.api_errors import StatusError, UnreachableError
from jobtree.kube.http.api_resources import BUDGETS, LEASES, RUNS
from jobtree.manager.controllers import set_aside
from tests.unit.manager.cluster_objects import POLICY, finish_pods, put_budget, put_nodes, put_policy, put_run
from tests.unit.manager.memory_cluster import Body, Fault, Manager, Server, StoppedError


@pytest.fixture
def archive(tmp_path: Path) -> ArchiveDirectory:
    return ArchiveDirectory(str(tmp_path / "archive"))


def begin(server: Server) -> None:
    """Puts three Runs: one will complete, one will be deleted, one will shrink."""
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


def end_leases(server: Server, manager: Manager) -> None:
    """Ends a lease of each of the three Runs; none is old enough for the archive yet."""
    manager.settle()
    server.now += 10 * 60_000
    finish_pods(server, "done")
    server.delete(RUNS.path("ns", "deleted"))
    shrink(server)
    manager.settle()


def with_old_leases(archive: ArchiveDirectory | None) -> tuple[Server, Manager]:
    server = Server()
    begin(server)
    manager = Manager(server, archive=archive)
    end_leases(server, manager)
    server.now += HOUR
    return server, manager


def sums(server: Server) -> dict[str, object]:
    """Returns the sums of a manager that starts now without an archive."""
    server.watchers = []
    return sums_of(Manager(server))


def sums_of(manager: Manager) -> dict[str, object]:
    """Returns the usage of envelopes and Runs, as limits and statuses count it."""
    world = manager.model.world
    at = world.now
    envelopes = {
        "/".join(key): (
            envelope.account.used(at),
            envelope.lending_account.used(at),
            {name: account.used(at) for name, account in envelope.by_class.items()},
        )
        for key, envelope in world.budgets.envelopes.items()
    }
    runs = {
        key[1]: (
            state.usage.closed_charge,
            {payer: account.used(at) for payer, account in state.usage.by_payer.items()},
        )
        for key, state in world.runs.items()
    }
    return {**envelopes, **runs}


def archived(archive: ArchiveDirectory) -> list[str]:
    content = read_archive(archive)
    assert content.problems == []
    return sorted(body["metadata"]["name"] for body in content.bodies)


def names(bodies: list[Body]) -> list[str]:
    return sorted(body["metadata"]["name"] for body in bodies)


def ended(server: Server) -> list[str]:
    return names([lease for lease in server.all(LEASES) if lease.get("status", {}).get("end")])


def expected() -> tuple[list[str], dict[str, object]]:
    """Returns the closed leases and the sums of a cluster without an archive."""
    server, manager = with_old_leases(None)
    manager.settle()
    return ended(server), sums(server)


def check_end(server: Server, manager: Manager, archive: ArchiveDirectory) -> None:
    """Checks that old leases are only in the archive, and that the sums are the same."""
    manager.settle()
    closed, expected_sums = expected()
    assert len(closed) == 3
    assert ended(server) == []
    assert archived(archive) == closed
    assert manager.violations == []
    assert sums_of(manager) == expected_sums
    assert sums(server) == expected_sums


def test_old_leases_move_to_the_archive_and_their_hours_stay(archive: ArchiveDirectory) -> None:
    server, manager = with_old_leases(archive)
    check_end(server, manager, archive)


def test_restarted_manager_without_the_archive_has_the_same_hours(archive: ArchiveDirectory) -> None:
    server, manager = with_old_leases(archive)
    manager.settle()
    restarted = Manager(server)
    restarted.settle()
    for key, envelope in manager.model.world.budgets.envelopes.items():
        assert (
            restarted.model.world.budgets.envelopes[key].account.closed_usage
            == envelope.account.closed_usage
            > 0
        )
    for key, state in manager.model.world.runs.items():
        assert restarted.model.world.runs[key].usage.closed_charge == state.usage.closed_charge
    assert restarted.violations == []


def test_leases_stay_when_there_is_no_archive() -> None:
    server, manager = with_old_leases(None)
    server.now += 10 * HOUR
    manager.settle()
    assert len(ended(server)) == 3


def test_leases_stay_until_their_retention_ends(archive: ArchiveDirectory) -> None:
    server = Server()
    begin(server)
    manager = Manager(server, archive=archive)
    end_leases(server, manager)
    server.now += 30 * 60_000 - 1
    manager.settle()
    assert len(ended(server)) == 3
    server.now += 1
    manager.settle()
    assert ended(server) == []


def archives_despite_crash(directory: Path, writes: int) -> bool:
    """Kills a manager after ``writes`` writes, and lets the next manager finish.

    Returns whether the manager made so many writes.
    """
    archive = ArchiveDirectory(str(directory / f"archive-{writes}"))
    server, _ = with_old_leases(archive)
    try:
        Manager(server, writes, archive).settle()
    except StoppedError:
        check_end(server, Manager(server, archive=archive), archive)
        return True
    return False


def archive_despite_fault(directory: Path, number: int, *, after: bool) -> None:
    """Lets one write fail, before or after it takes effect, and lets the manager finish."""
    archive = ArchiveDirectory(str(directory / f"archive-{number}"))
    server, manager = with_old_leases(archive)
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


def test_leases_stay_when_the_archive_is_full(
    archive: ArchiveDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, manager = with_old_leases(archive)

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


def test_lease_stays_when_its_usage_cannot_be_carried(
    archive: ArchiveDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(set_aside, "FIRST_PAUSE_MS", 0)  # time does not pass in this test
    server, manager = with_old_leases(archive)
    change = server.change

    def refusing(path: str, body: Body, subresource: str, *, merge: bool) -> Body:
        if "/budgets/" in path:
            raise StatusError(403, "Forbidden", "refused")
        return change(path, body, subresource, merge=merge)

    with monkeypatch.context() as patch:
        patch.setattr(server, "change", refusing)
        for _ in range(5):
            manager.turn()
    assert len(ended(server)) == 3
    assert len(archived(archive)) == 3
    check_end(server, manager, archive)


def test_leases_of_a_deleted_budget_move_to_the_archive(archive: ArchiveDirectory) -> None:
    server, manager = with_old_leases(archive)
    old = ended(server)
    server.delete(BUDGETS.path(name="org"))
    manager.settle()
    assert not set(old) & set(ended(server))
    assert archived(archive) == old


def test_recreated_budget_gets_its_carried_usage(
    archive: ArchiveDirectory,
) -> None:
    server, manager = with_old_leases(archive)
    manager.settle()
    carried = server.all(BUDGETS)[0]["status"]["carried"]["envelopes"]
    server.delete(BUDGETS.path(name="org"))
    put_budget(server, "org", 64, maxGPUHours=1000)
    manager.settle()
    assert server.all(BUDGETS)[0]["status"]["carried"]["envelopes"] == carried
    assert manager.violations == []


def test_closed_lease_deleted_by_a_user_still_counts() -> None:
    server, manager = with_old_leases(None)
    (lease,) = (lease for lease in server.all(LEASES) if lease["spec"]["runRef"]["name"] == "done")
    used = 8 * 10 * 60
    server.delete(LEASES.path(name=lease["metadata"]["name"]))
    manager.settle()
    assert any("deleted while its hours counted" in violation for violation in manager.violations)
    (carried,) = server.all(BUDGETS)[0]["status"]["carried"]["envelopes"]
    assert carried["gpuSeconds"]["owned"] == format_micro(used * 1_000_000)
    restarted = Manager(server)
    restarted.settle()
    assert restarted.violations == []
    key = ("org", carried["name"])
    world, expected_world = restarted.model.world, manager.model.world
    assert (
        world.budgets.envelopes[key].account.closed_usage
        == expected_world.budgets.envelopes[key].account.closed_usage
    )


def test_new_leader_keeps_carried_usage_that_it_sees_late(archive: ArchiveDirectory) -> None:
    """A new leader sees that leases are gone before it sees the carried usage; it keeps what others wrote."""
    server, _ = with_old_leases(archive)
    stale = {path: body for path, body in server.objects.items() if body["kind"] in ("Budget", "Run")}
    Manager(server, archive=archive).settle()
    late = {path: server.objects[path] for path in stale}
    server.objects |= stale
    standby = Manager(server)
    for path, body in late.items():
        server.objects[path] = body
        standby._watch(path, body, exists=True)
    put_run(server, "last", "org", 8)
    standby.settle()
    carried = server.all(BUDGETS)[0]["status"]["carried"]["envelopes"]
    assert carried == late[BUDGETS.path(name="org")]["status"]["carried"]["envelopes"]
    assert {**sums(server), "last": None} == {**expected()[1], "last": None}
