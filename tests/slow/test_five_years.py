"""Five years are simulated with an archive and without: the state file does not grow, and all sums are equal.

Each month two teams run a few jobs, with family charges, loans, spares and opportunistic work, and trees
under a quota. A service never ends and changes its payer with every window. The state file is read and saved
every month, so no other state is kept.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobtree.api.documents.document_stream import Document
from jobtree.api.documents.yaml_writer import dump_yaml
from jobtree.api.kinds.policy import clock_document
from jobtree.api.schema.quantities import DAY, HOUR, parse_time
from jobtree.archive.archive_directory import ArchiveDirectory
from jobtree.archive.archive_reader import read_archive
from jobtree.client.source.lease_entries import LeaseEntry, entries
from jobtree.client.source.ledger_period import Period
from jobtree.core.accounts.envelope_accounts import reported_amount, usage_class
from jobtree.core.model.gpu_lease import RunKey
from jobtree.simulation.cluster.simulated_cluster import SimulatedCluster
from jobtree.simulation.inputs.job_trace import Cut
from jobtree.simulation.inputs.lease_trace import read_ledger
from jobtree.snapshot.state_file import StateFile, parse_cluster
from tests.unit.cli.manifests import FLAVOR, T0, Body, budget, envelope, lasting, nodes, run

YEARS = 5
MONTHS = [f"{2026 + number // 12}-{number % 12 + 1:02d}-01T00:00:00Z" for number in range(1, 12 * YEARS + 1)]
Totals = dict[tuple[str, tuple[str, str], str, str], int]


def fleet_and_budgets() -> list[Body]:
    """The service is paid by another envelope each year."""
    windows = [
        envelope(8, f"y{year}", start=f"{year}-01-01T00:00:00Z", end=f"{year + 1}-01-01T00:00:00Z")
        for year in range(2026, 2026 + YEARS + 1)
    ]
    lending = {"allow": True, "to": ["org:guest"], "maxGPUHours": 100_000}
    return [
        *nodes(4, "a"),
        budget("service", *windows, owner="org:service"),
        budget(
            "lab",
            envelope(16, "own", maxGPUHours=1_000_000, lending=lending),
            owner="org:lab",
            aggregateCaps=[{"name": "all", "envelopes": ["own"], "maxGPUHours": 900_000}],
        ),
        budget("guest", envelope(4, "small"), owner="org:guest", parents=[]),
    ]


def tree(name: str, hours: int) -> Body:
    """Two stages, one after the other, under one quota."""
    stage = {"resources": {"gpuType": FLAVOR, "totalGPUs": 2}}
    stages = [{"name": "one", **stage}, {"name": "two", "after": ["one"], **stage}]
    return {
        "apiVersion": "rq.davidlangworthy.io/v1",
        "kind": "Run",
        "metadata": {"name": name, "namespace": "lab"},
        "spec": {"owner": "org:lab", "quota": {"maxGPUHours": hours}, "stages": stages},
    }


def month_of_work(number: int) -> list[Body]:
    return [
        lasting(run(f"job-{number}", 8, owner="org:lab", namespace="lab", spares=1), f"{30 + number}h"),
        lasting(
            run(
                f"loan-{number}",
                8,
                owner="org:guest",
                namespace="guest",
                funding={"allowBorrow": True, "sponsors": ["org:lab"]},
            ),
            "17h0m1s",
        ),
        lasting(
            run(
                f"free-{number}",
                8,
                owner="org:guest",
                namespace="guest",
                funding={"allowOpportunistic": True},
            ),
            "3h7m",
        ),
        *([tree("long", 1_000_000)] if number == 0 else [tree(f"tree-{number}", 500)]),
    ]


def service() -> Body:
    """A Run that never ends."""
    return run("service", 8, owner="org:service", namespace="service")


def simulate_month(cluster: SimulatedCluster, number: int, until: int) -> None:
    """Deletes finished Runs, submits the Runs of the month, and lets the month pass."""
    for key in finished(cluster):
        cluster.cancel(key)
    cluster.submit([Document("it", body) for body in month_of_work(number)])
    cluster.advance(cluster.now + 2 * DAY)
    for stage in ("one", "two") if number else ("one",):  # the second stage of the long tree never ends
        cluster.complete(("lab", f"tree-{number}-{stage}" if number else f"long-{stage}"))
        cluster.advance(cluster.now + HOUR)
    cluster.advance(until)


def finished(cluster: SimulatedCluster) -> list[RunKey]:
    return [
        key
        for key, state in cluster.world.runs.items()
        if state.phase in ("Completed", "Failed") and state.parent is None
    ]


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Histories"]:
    with pytest.MonkeyPatch.context() as patch:
        path = tmp_path_factory.mktemp("years")
        patch.setenv("JOBTREE_LOTTERY_KEY", str(path / "lottery.key"))
        yield Histories(path)


class Histories:
    """The same five years with an archive (``archived``) and without one (``complete``)."""

    def __init__(self, path: Path) -> None:
        text = dump_yaml([clock_document(parse_time(T0)), *fleet_and_budgets(), service()])
        self.complete = parse_cluster(text, "complete", SimulatedCluster)  # never saved, keeps every lease
        self.archive = ArchiveDirectory(str(path / "archive"))
        self.file = StateFile(str(path / "cluster.yaml"), SimulatedCluster)
        self.file.create(text)
        self.sizes: list[int] = []
        self.leases: list[int] = []
        for number, month in enumerate(MONTHS):
            simulate_month(self.complete, number, parse_time(month))
            with self.file.edit(self.archive) as cluster:
                simulate_month(cluster, number, parse_time(month))
            self.sizes.append(self.file.path.stat().st_size)
            self.leases.append(sum(1 for _ in cluster.objects.of("Lease")))
        self.archived = self.file.read()


def totals(cluster: SimulatedCluster, leases: list[LeaseEntry]) -> Totals:
    """Returns the usage (charge × milliseconds) by owner, envelope, class and month."""
    bounds = [parse_time(T0[:8] + "01T00:00:00Z"), *map(parse_time, MONTHS)]
    sums: Totals = {}
    for month, first, last in zip(
        ["2026-01", *(m[:7] for m in MONTHS)], bounds, [*bounds[1:], 1 << 60], strict=True
    ):
        period = Period(first, last)
        for lease, end, _, _ in leases:
            if period.overlaps(lease.start, end):
                start, until = period.clip(lease.start, cluster.now if end is None else end)
                key = (lease.owner, lease.payer, usage_class(lease), month)
                sums[key] = sums.get(key, 0) + reported_amount(lease) * (until - start)
    return {key: used for key, used in sums.items() if used}


def all_leases(cluster: SimulatedCluster, archived: list[Body]) -> list[LeaseEntry]:
    return entries(cluster, lambda _: True, archived=archived)


def test_state_file_does_not_grow(histories: Histories) -> None:
    after_a_year = 12
    assert max(histories.leases[after_a_year:]) <= max(histories.leases[:after_a_year])
    assert max(histories.sizes[after_a_year:]) <= max(histories.sizes[:after_a_year]) * 1.1
    assert len(all_leases(histories.complete, [])) > 5 * max(histories.leases)


def test_totals_by_owner_envelope_and_month_include_archived_leases(histories: Histories) -> None:
    contents = read_archive(histories.archive)
    assert contents.problems == []
    with_archive = totals(histories.archived, all_leases(histories.archived, contents.bodies))
    assert with_archive == totals(histories.complete, all_leases(histories.complete, []))
    classes = {key[2] for key in with_archive}
    assert classes == {"owned", "borrowed", "spare", "opportunistic"}


def test_every_lease_is_in_the_file_or_the_archive(histories: Histories) -> None:
    leases = all_leases(histories.archived, read_archive(histories.archive).bodies)
    assert [entry.body for entry in leases] == [entry.body for entry in all_leases(histories.complete, [])]


def statuses(cluster: SimulatedCluster, kind: str) -> dict[str, Any]:
    return {
        body["metadata"]["name"]: {**body["status"], "carried": None}
        for body in cluster.documents()
        if body["kind"] == kind
    }


@pytest.mark.parametrize("kind", ["Budget", "Run"])
def test_statuses_are_the_same_with_an_archive(histories: Histories, kind: str) -> None:
    assert statuses(histories.archived, kind) == statuses(histories.complete, kind)


def test_state_file_has_the_usage_of_every_limit(histories: Histories) -> None:
    for key, expected in histories.complete.world.budgets.envelopes.items():
        state = histories.archived.world.budgets.envelopes[key]
        assert state.account.closed_usage == expected.account.closed_usage
        assert state.lending_account.closed_usage == expected.lending_account.closed_usage
        assert [cap.account.closed_usage for cap in state.caps] == [
            cap.account.closed_usage for cap in expected.caps
        ]
    assert histories.archived.world.budgets.envelopes["lab", "own"].lending_account.closed_usage > 0
    for key, expected_run in histories.complete.world.runs.items():
        assert histories.archived.world.runs[key].usage.closed_charge == expected_run.usage.closed_charge
    assert histories.archived.world.runs["lab", "long-one"].usage.carried_charge > 0
    assert quota_usage(histories.archived) == quota_usage(histories.complete)


def quota_usage(cluster: SimulatedCluster) -> list[tuple[str, int]]:
    return [(quota.label, quota.closed_usage) for quota in cluster.world.run_graph.quotas()]


def test_ledger_gives_the_same_job_trace(histories: Histories, tmp_path: Path) -> None:
    """The usage of a finished Run is that of its leases in the file plus its carried usage.

    The trace has no jobs for deleted Runs, whose leases are only in the archive.
    """
    traces = []
    for name, cluster in (("archived", histories.archived), ("complete", histories.complete)):
        path = tmp_path / f"{name}.yaml"
        runs = [body for body in cluster.documents() if body["kind"] == "Run"]
        uids = {run["metadata"]["uid"] for run in runs}
        leases = [body for body in cluster.documents() if body["kind"] == "Lease"]
        leases = [lease for lease in leases if lease["spec"]["runRef"]["uid"] in uids]
        path.write_text(dump_yaml([*runs, *leases]))
        trace = read_ledger(str(path), 1000, Cut())
        traces.append((list(trace.submit), list(trace.duration), list(trace.gpus)))
    assert traces[0] == traces[1]
    assert min(traces[0][0]) == 0  # the first stage of the long tree, of which no lease is left
