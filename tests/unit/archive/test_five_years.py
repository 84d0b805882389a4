"""Five simulated years, lived twice: with an archive and without. The file does not grow, the sums are equal.

A month is a few jobs of two teams that pay for themselves, for each other and out of a loan, with spares and
with work that nobody pays for; a service that never ends and changes its payer with every window; and trees
under a quota. The file is read and saved every month, so nothing is known but what it tells.
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
from jobtree.cli.source.lease_entries import LeaseEntry, entries
from jobtree.cli.source.ledger_period import Period
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
    """A service's money comes from one envelope in odd years and another in even ones."""
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
    """Never ends."""
    return run("service", 8, owner="org:service", namespace="service")


def live_a_month(cluster: SimulatedCluster, number: int, until: int) -> None:
    """Last month's Runs go, this month's come, and time passes."""
    for name in finished(cluster):
        cluster.cancel(name)
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
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Lived"]:
    with pytest.MonkeyPatch.context() as patch:
        path = tmp_path_factory.mktemp("years")
        patch.setenv("JOBTREE_LOTTERY_KEY", str(path / "lottery.key"))
        yield Lived(path)


class Lived:
    """Both lives, month by month."""

    def __init__(self, path: Path) -> None:
        text = dump_yaml([clock_document(parse_time(T0)), *fleet_and_budgets(), service()])
        self.whole = parse_cluster(text, "whole", SimulatedCluster)  # keeps every lease, in one go
        self.archive = ArchiveDirectory(str(path / "archive"))
        self.file = StateFile(str(path / "cluster.yaml"), SimulatedCluster)
        self.file.create(text)
        self.sizes: list[int] = []
        self.leases: list[int] = []
        for number, month in enumerate(MONTHS):
            live_a_month(self.whole, number, parse_time(month))
            with self.file.edit(self.archive) as cluster:
                live_a_month(cluster, number, parse_time(month))
            self.sizes.append(self.file.path.stat().st_size)
            self.leases.append(sum(1 for _ in cluster.objects.of("Lease")))
        self.kept = self.file.read()


def totals(cluster: SimulatedCluster, found: list[LeaseEntry]) -> Totals:
    """By owner, envelope, class and month: thousandths of a GPU times milliseconds."""
    bounds = [parse_time(T0[:8] + "01T00:00:00Z"), *map(parse_time, MONTHS)]
    sums: Totals = {}
    for month, first, last in zip(
        ["2026-01", *(m[:7] for m in MONTHS)], bounds, [*bounds[1:], 1 << 60], strict=True
    ):
        period = Period(first, last)
        for lease, end, _, _ in found:
            if period.overlaps(lease.start, end):
                start, until = period.clip(lease.start, cluster.now if end is None else end)
                key = (lease.owner, lease.payer, usage_class(lease), month)
                sums[key] = sums.get(key, 0) + reported_amount(lease) * (until - start)
    return {key: used for key, used in sums.items() if used}


def everything(cluster: SimulatedCluster, archived: list[Body]) -> list[LeaseEntry]:
    return entries(cluster, lambda _: True, archived=archived)


def test_the_file_does_not_grow(lived: Lived) -> None:
    after_a_year = 12
    assert max(lived.leases[after_a_year:]) <= max(lived.leases[:after_a_year])
    assert max(lived.sizes[after_a_year:]) <= max(lived.sizes[:after_a_year]) * 1.1
    assert len(everything(lived.whole, [])) > 5 * max(lived.leases)


def test_totals_by_owner_envelope_and_month_are_exact_across_the_cut(lived: Lived) -> None:
    archived = read_archive(lived.archive)
    assert archived.problems == []
    with_archive = totals(lived.kept, everything(lived.kept, archived.bodies))
    assert with_archive == totals(lived.whole, everything(lived.whole, []))
    classes = {key[2] for key in with_archive}
    assert classes == {"owned", "borrowed", "spare", "opportunistic"}


def test_every_lease_is_there_once_as_it_was(lived: Lived) -> None:
    kept = everything(lived.kept, read_archive(lived.archive).bodies)
    assert [entry.body for entry in kept] == [entry.body for entry in everything(lived.whole, [])]


def statuses(cluster: SimulatedCluster, kind: str) -> dict[str, Any]:
    found = {}
    for body in cluster.documents():
        if body["kind"] == kind:
            found[body["metadata"]["name"]] = {**body["status"], "carried": None}
    return found


@pytest.mark.parametrize("kind", ["Budget", "Run"])
def test_what_budgets_and_runs_say_of_themselves_is_what_they_would_say_without(
    lived: Lived, kind: str
) -> None:
    assert statuses(lived.kept, kind) == statuses(lived.whole, kind)


def test_the_file_alone_knows_every_limit_without_the_archive(lived: Lived) -> None:
    for key, envelope_ in lived.whole.world.budgets.envelopes.items():
        kept = lived.kept.world.budgets.envelopes[key]
        assert kept.account.closed_usage == envelope_.account.closed_usage
        assert kept.lending_account.closed_usage == envelope_.lending_account.closed_usage
        assert [cap.account.closed_usage for cap in kept.caps] == [
            cap.account.closed_usage for cap in envelope_.caps
        ]
    assert lived.kept.world.budgets.envelopes["lab", "own"].lending_account.closed_usage > 0
    for key, state in lived.whole.world.runs.items():
        assert lived.kept.world.runs[key].usage.closed_charge == state.usage.closed_charge
    quotas = [(one.label, one.closed_usage) for one in lived.whole.world.run_graph.quotas()]
    assert lived.kept.world.runs["lab", "long-one"].usage.carried_charge > 0
    assert [(one.label, one.closed_usage) for one in lived.kept.world.run_graph.quotas()] == quotas


def test_the_ledger_is_the_same_trace_of_jobs(lived: Lived, tmp_path: Path) -> None:
    """What a finished Run used is what its leases here and those it carries used together.

    Runs that were deleted, with leases that are in the archive alone, are told to nobody.
    """
    found = []
    for name, cluster in (("kept", lived.kept), ("whole", lived.whole)):
        path = tmp_path / f"{name}.yaml"
        runs = [body for body in cluster.documents() if body["kind"] == "Run"]
        there = {run["metadata"]["uid"] for run in runs}
        leases = [body for body in cluster.documents() if body["kind"] == "Lease"]
        path.write_text(dump_yaml([*runs, *(one for one in leases if one["spec"]["runRef"]["uid"] in there)]))
        trace = read_ledger(str(path), 1000, Cut())
        found.append((list(trace.submit), list(trace.duration), list(trace.gpus)))
    assert found[0] == found[1]
    assert min(found[0][0]) == 0  # the first stage of the long tree, of which no lease is left
