"""The samples work as their comments say: each on a fresh copy of the sample cluster."""

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

Split = dict[tuple[str, str, str], int]  # payer, class and role of a Run's leases: GPUs


class Expected(msgspec.Struct, frozen=True):
    """Who pays for how many GPUs, and the island of every group."""

    split: Split
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
    # Five nodes to a group with its spare: three groups fill an island of sixteen, the fourth has to cross.
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
    """The sample cluster with the sample budgets, in the order in which the documentation submits them."""
    cluster = parse_cluster(
        (SAMPLES / "cluster.yaml").read_text(encoding="utf-8"), "cluster.yaml", SimulatedCluster
    )
    for name in ("budget-west-h100", "budget-vision-lending"):
        cluster.submit(documents(SAMPLES / "budgets" / f"{name}.yaml"))
    return cluster


def leases_of(cluster: SimulatedCluster, name: str) -> list[GpuLease]:
    (state,) = (state for key, state in cluster.world.runs.items() if key[1] == name)
    assert state.phase == "Running", state.verdict
    return list(state.leases.values())


def split_of(leases: list[GpuLease]) -> Split:
    gpus: Counter[tuple[str, str, str]] = Counter()
    for lease in leases:
        gpus["/".join(lease.payer), lease.class_, lease.role] += lease.gpus
    return dict(gpus)


def domains_of(cluster: SimulatedCluster, leases: list[GpuLease]) -> list[str]:
    """The one island of each group, by the group's number."""
    found: dict[int, set[str]] = {}
    for lease in leases:
        names = {cluster.world.fleet.nodes[node].domain.name for node, _ in lease.slots}
        found.setdefault(lease.group, set()).update(names)
    return ["+".join(sorted(found[group])) for group in sorted(found)]


def test_every_sample_is_expected_here() -> None:
    assert [path.stem for path in RUNS] == sorted(EXPECTED)
    assert [path.stem for path in BUDGETS] == ["budget-vision-lending", "budget-west-h100"]


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in [*BUDGETS, *RUNS]])
def test_a_sample_is_valid_and_of_the_family(path: Path) -> None:
    for document in documents(path):
        parsed = parse_object(document.body, document.where)
        assert isinstance(parsed, (Budget, Run))
        assert f"{parsed.spec.owner}:".startswith("org:ai:")


@pytest.mark.parametrize("name", EXPECTED)
def test_a_sample_starts_at_once_and_is_paid_as_it_says(cluster: SimulatedCluster, name: str) -> None:
    cluster.submit(documents(SAMPLES / "runs" / f"{name}.yaml"))
    leases = leases_of(cluster, name)
    assert Expected(split_of(leases), domains_of(cluster, leases)) == EXPECTED[name]


@pytest.mark.parametrize("name", EXPECTED)
def test_a_sample_says_what_its_pods_run(name: str) -> None:
    template = sample_run(name).spec.template
    assert template is not None
    (worker,) = template["spec"]["containers"]
    assert worker["command"][0] == "torchrun"
    assert template_requests(template).cpu_milli > 0


def test_the_first_two_runs_fill_the_cluster_together(cluster: SimulatedCluster) -> None:
    for name in ("run-128-groups", "run-cofunded-128"):
        cluster.submit(documents(SAMPLES / "runs" / f"{name}.yaml"))
        assert sum(lease.gpus for lease in leases_of(cluster, name)) == 128
    assert cluster.world.fleet.flavor("H100-80GB").free == 0


def test_once_the_sprint_is_over_the_lasting_envelope_pays_alone(cluster: SimulatedCluster) -> None:
    """Samples are applied to live clusters long after the dates in them."""
    cluster.advance(cluster.now + 14 * 24 * 3_600_000)
    cluster.submit(documents(SAMPLES / "runs" / "trainer-128.yaml"))
    assert split_of(leases_of(cluster, "trainer-128")) == {
        (OWN, "Owned", "Active"): 128,
        (OWN, "Owned", "Spare"): 32,
    }


def test_the_named_samples_keep_their_word() -> None:
    small, trainer = sample_run("resnet-small"), sample_run("trainer-128")
    assert (small.metadata.namespace, small.spec.owner) == ("rai-sys", "org:ai:rai:sys")
    assert small.spec.runtime.checkpoint == "10m"
    assert trainer.spec.runtime.checkpoint == "30m"
    flexible = trainer.spec.malleable
    assert flexible is not None
    assert (flexible.min_total_gpus, flexible.max_total_gpus, flexible.step_gpus) == (96, 160, 32)
    assert trainer.spec.spares == 1


def test_spares_are_charged_at_a_quarter(cluster: SimulatedCluster) -> None:
    cluster.submit(documents(SAMPLES / "runs" / "trainer-128.yaml"))
    lasting, sprint = budget_status(cluster.world, "rai-sys").envelopes
    assert (lasting.used_gpus, sprint.used_gpus) == ("104", "32")  # 96 + 32 × 0.25, and 32


def test_vision_lends_a_quarter_of_its_gpus() -> None:
    ((_, body),) = documents(SAMPLES / "budgets" / "budget-vision-lending.yaml")
    budget = parse_object(body, "vision")
    assert isinstance(budget, Budget)
    (envelope,) = budget.spec.envelopes
    assert envelope.lending is not None
    assert (envelope.concurrency, envelope.lending.max_concurrency) == (256, 64)
