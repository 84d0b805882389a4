"""Each sample does what its comments say, on a new copy of the sample cluster."""

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from jobtree.api.documents.document_stream import Document, read_documents
from jobtree.api.kinds.budget import Budget
from jobtree.api.kinds.run import Run
from jobtree.api.kubernetes.pod import template_requests
from jobtree.api.validation.object_parser import parse_object
from jobtree.core.model.gpu_lease import GpuLease
from jobtree.core.reporting.object_status import budget_status
from jobtree.simulation.cluster.simulated_cluster import SimulatedCluster
from jobtree.snapshot.state_file import parse_cluster

SAMPLES = Path(__file__).parents[2] / "config" / "samples"
BUDGETS = sorted(SAMPLES.glob("budgets/*.yaml"))
RUNS = sorted(SAMPLES.glob("runs/*.yaml"))

NV_A, NV_B = "us-west/gpu-a/nv-a", "us-west/gpu-a/nv-b"

PaidGpus = dict[tuple[str, str, str], int]  # GPUs of a Run by payer, class and role


class Expected(msgspec.Struct, frozen=True):
    """The GPUs of each payer, class and role, and the domain of each group."""

    paid: PaidGpus
    domains: list[str]


OWN, SPRINT = "rai-sys/west-h100", "rai-sys/west-h100-sprint"

EXPECTED = {
    "resnet-small": Expected({(SPRINT, "Owned", "Active"): 8}, [NV_A]),
    "run-128-groups": Expected(
        {(SPRINT, "Owned", "Active"): 32, (OWN, "Owned", "Active"): 96}, [NV_A, NV_A, NV_A, NV_A]
    ),
    "run-cofunded-128": Expected(
        {("rai/west-h100", "Owned", "Active"): 96, ("vision/west-h100", "Borrowed", "Active"): 32},
        [NV_A, NV_A, NV_A, NV_A],
    ),
    "run-with-spares": Expected(
        {(SPRINT, "Owned", "Active"): 32, (OWN, "Owned", "Active"): 32, (OWN, "Owned", "Spare"): 16},
        [NV_A, NV_A],
    ),
    # A group with its spare has five nodes: a domain of 16 nodes holds three groups, the fourth is elsewhere.
    "trainer-128": Expected(
        {(SPRINT, "Owned", "Active"): 32, (OWN, "Owned", "Active"): 96, (OWN, "Owned", "Spare"): 32},
        [NV_A, NV_A, NV_A, NV_B],
    ),
}


def documents(path: Path) -> list[Document]:
    return read_documents(path.read_text(encoding="utf-8"), path.name)


def sample_run(name: str) -> Run:
    (document,) = documents(SAMPLES / "runs" / f"{name}.yaml")
    run = parse_object(document.body, document.where)
    assert isinstance(run, Run)
    return run


@pytest.fixture(name="cluster")
def _cluster() -> SimulatedCluster:
    """The sample cluster with the sample budgets, submitted in the order of the documentation."""
    cluster = parse_cluster(
        (SAMPLES / "cluster.yaml").read_text(encoding="utf-8"), "cluster.yaml", SimulatedCluster
    )
    for name in ("budget-west-h100", "budget-vision-lending"):
        cluster.submit(documents(SAMPLES / "budgets" / f"{name}.yaml"))
    return cluster


def leases_of(cluster: SimulatedCluster, name: str) -> list[GpuLease]:
    (run,) = (run for key, run in cluster.world.runs.items() if key[1] == name)
    assert run.phase == "Running", run.verdict
    return list(run.leases.values())


def paid_gpus(leases: list[GpuLease]) -> PaidGpus:
    gpus: Counter[tuple[str, str, str]] = Counter()
    for lease in leases:
        gpus["/".join(lease.payer), lease.class_, lease.role] += lease.gpus
    return dict(gpus)


def domains_of(cluster: SimulatedCluster, leases: list[GpuLease]) -> list[str]:
    """Returns the domain of each group, in the order of the groups."""
    by_group: dict[int, set[str]] = {}
    for lease in leases:
        names = {cluster.world.fleet.domain_by_node[node].name for node, _ in lease.slots}
        by_group.setdefault(lease.group, set()).update(names)
    return ["+".join(sorted(by_group[group])) for group in sorted(by_group)]


def test_every_sample_is_tested() -> None:
    assert [path.stem for path in RUNS] == sorted(EXPECTED)
    assert [path.stem for path in BUDGETS] == ["budget-vision-lending", "budget-west-h100"]


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in [*BUDGETS, *RUNS]])
def test_sample_is_valid_and_belongs_to_the_family(path: Path) -> None:
    for document in documents(path):
        parsed = parse_object(document.body, document.where)
        assert isinstance(parsed, (Budget, Run))
        assert f"{parsed.spec.owner}:".startswith("org:ai:")


@pytest.mark.parametrize("name", EXPECTED)
def test_sample_starts_at_once_with_the_payers_of_its_comments(cluster: SimulatedCluster, name: str) -> None:
    cluster.submit(documents(SAMPLES / "runs" / f"{name}.yaml"))
    leases = leases_of(cluster, name)
    assert Expected(paid_gpus(leases), domains_of(cluster, leases)) == EXPECTED[name]


@pytest.mark.parametrize("name", EXPECTED)
def test_sample_has_a_template_that_runs_torchrun(name: str) -> None:
    packed = sample_run(name).spec.template
    assert packed is not None
    template = packed.document()
    (worker,) = template["spec"]["containers"]
    assert worker["command"][0] == "torchrun"
    assert template_requests(template).cpu_milli > 0


def test_two_runs_of_the_guide_fill_the_cluster(cluster: SimulatedCluster) -> None:
    for name in ("run-128-groups", "run-cofunded-128"):
        cluster.submit(documents(SAMPLES / "runs" / f"{name}.yaml"))
        assert sum(lease.gpus for lease in leases_of(cluster, name)) == 128
    assert cluster.world.fleet.flavor("H100-80GB").free == 0


def test_permanent_envelope_pays_alone_after_the_sprint(cluster: SimulatedCluster) -> None:
    """Samples are applied to live clusters long after the dates in them, so they must work then too."""
    cluster.advance(cluster.now + 14 * 24 * 3_600_000)
    cluster.submit(documents(SAMPLES / "runs" / "trainer-128.yaml"))
    assert paid_gpus(leases_of(cluster, "trainer-128")) == {
        (OWN, "Owned", "Active"): 128,
        (OWN, "Owned", "Spare"): 32,
    }


def test_samples_have_the_values_that_the_guide_names() -> None:
    small, trainer = sample_run("resnet-small"), sample_run("trainer-128")
    assert (small.metadata.namespace, small.spec.owner) == ("rai-sys", "org:ai:rai:sys")
    assert small.spec.runtime.checkpoint == "10m"
    assert trainer.spec.runtime.checkpoint == "30m"
    malleable = trainer.spec.malleable
    assert malleable is not None
    assert (malleable.min_total_gpus, malleable.max_total_gpus, malleable.step_gpus) == (96, 160, 32)
    assert trainer.spec.spares == 1


def test_spares_of_the_sample_are_charged_at_a_quarter(cluster: SimulatedCluster) -> None:
    cluster.submit(documents(SAMPLES / "runs" / "trainer-128.yaml"))
    lasting, sprint = budget_status(cluster.world, "rai-sys").envelopes
    assert (lasting.used_gpus, sprint.used_gpus) == ("104", "32")  # 96 + 32 × 0.25, and 32


def test_vision_sample_lends_a_quarter_of_its_gpus() -> None:
    ((_, body),) = documents(SAMPLES / "budgets" / "budget-vision-lending.yaml")
    budget = parse_object(body, "vision")
    assert isinstance(budget, Budget)
    (envelope,) = budget.spec.envelopes
    assert envelope.lending is not None
    assert (envelope.concurrency, envelope.lending.max_concurrency) == (256, 64)


def test_reservation_sample_starts_with_a_lottery_after_the_least_runtime() -> None:
    """The file works with kubectl apply and with submit -f, so it holds Budgets and Runs alone."""
    cluster = parse_cluster(
        (SAMPLES / "cluster.yaml").read_text(encoding="utf-8"), "cluster.yaml", SimulatedCluster
    )
    sample = documents(SAMPLES / "reservations" / "reservation-example.yaml")
    assert {document.body["kind"] for document in sample} == {"Budget", "Run"}
    assert [document.body for document in sample if {"status", "uid"} & document.body.keys()] == []
    cluster.submit(sample)
    translate = cluster.world.runs["default", "translate"]
    assert translate.promise is not None
    assert translate.promise.at == cluster.now + 2 * 3_600_000
    cluster.advance(translate.promise.at)
    losers = [event.run[1] for event in cluster.events if event.name == "RandomPreempt"]
    assert translate.phase == "Running"
    assert len(losers) == 1
    assert losers[0] in {"align", "asr", "probe"}
