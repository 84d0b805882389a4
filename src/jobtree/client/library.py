"""The functions of ``import jobtree``. Each works on the cluster of the enclosing ``with`` block.

Without such a block it is the state file that ``JOBTREE_STATE`` names, else the cluster of the kubeconfig, as
in the command line.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, overload

from jobtree.client.answers.fleet_rows import EnvelopeRow, ReservationRow
from jobtree.client.answers.lease_rows import LeaseRow
from jobtree.client.answers.rows import Rows
from jobtree.client.answers.timeline import Timeline
from jobtree.client.backends.current_backend import current_backend, open_backend
from jobtree.client.backends.simulated_backend import SimulatedBackend
from jobtree.client.clusters import ClusterClient, Described, SimulatedClusterClient
from jobtree.client.lottery.record_proof import Verification, verify_record
from jobtree.client.plans.plan_result import PlanResult
from jobtree.client.run import Run
from jobtree.client.source.live_cluster import ClusterName
from jobtree.client.source.sample_cluster import starting_cluster
from jobtree.simulation.cluster.simulated_cluster import SimulatedCluster
from jobtree.snapshot.state_file import StateFile


@overload
def cluster(state: str | Path, *, namespace: str = "") -> SimulatedClusterClient: ...


@overload
def cluster(
    state: None = None, *, context: str = "", kubeconfig: str = "", namespace: str = ""
) -> ClusterClient: ...


def cluster(
    state: str | Path | None = None, *, context: str = "", kubeconfig: str = "", namespace: str = ""
) -> ClusterClient:
    """Opens a state file, or the cluster of a context of the kubeconfig.

    ``namespace`` is that of names and new Runs without one.
    """
    return client_of(open_backend(str(state or ""), ClusterName(context, kubeconfig, namespace)))


def sample_cluster(path: str | Path, *, replace: bool = False) -> SimulatedClusterClient:
    """Writes the state file of a small simulated cluster, as ``kubectl runs init`` does, and opens it."""
    StateFile(str(path), SimulatedCluster).create(starting_cluster(), replace=replace)
    return cluster(path)


def client_of(backend: object) -> ClusterClient:
    if isinstance(backend, SimulatedBackend):
        return SimulatedClusterClient(backend)
    return ClusterClient(backend)  # type: ignore[arg-type]


def current_cluster() -> ClusterClient:
    """Returns the cluster that the functions of this module work on."""
    return client_of(current_backend())


def run(name: str) -> Run:
    """Returns a Run by its name or ``namespace/name``. Raises NotFoundError."""
    return current_cluster().run(name)


def runs(owner: str | None = None, *, namespace: str = "", phase: str | None = None) -> Rows[Run]:
    """Returns the Runs of a team and of teams below it, of a namespace, in a phase; by default all."""
    return current_cluster().runs(owner, namespace=namespace, phase=phase)


def budgets(owner: str | None = None) -> Rows[EnvelopeRow]:
    """Returns the use of each envelope and cap of a team and of teams below it; by default of all."""
    return current_cluster().budgets(owner)


def reservations(*, namespace: str = "", ended: bool = False) -> Rows[ReservationRow]:
    """Returns promised starts, earliest first; with ``ended``, also those that are over."""
    return current_cluster().reservations(namespace=namespace, ended=ended)


def leases(
    run: str | None = None,
    *,
    owner: str | None = None,
    since: str | None = None,
    until: str | None = None,
    only_open: bool = False,
) -> Rows[LeaseRow]:
    """Returns leases, oldest first: of a Run, of a team and of teams below it, in a period.

    ``since`` and ``until`` are days (``"2026-02-01"``) or times (``"2026-02-01T09:00:00Z"``). With one of
    them archived leases are read as well; ``warnings`` of the result names what could not be read.
    """
    return current_cluster().leases(run, owner=owner, since=since, until=until, only_open=only_open)


def plan(*runs: Described) -> PlanResult:
    """Plans as if these Runs were created now, all together; a name is a Run that exists."""
    return current_cluster().plan(*runs)


def submit(*runs: Run | Mapping[str, Any], replace: bool = False) -> list[Run]:
    """Creates Runs, all of them or none; manifests of Budgets and Nodes as dicts as well."""
    return current_cluster().submit(*runs, replace=replace)


def timeline(next: str = "8h") -> Timeline:  # noqa: A002  as in the command line
    """Returns the coming hours of each domain: which Runs have GPUs, and which GPUs are promised."""
    return current_cluster().timeline(next)


def verify(record: Mapping[str, Any]) -> Verification:
    """Recomputes the lotteries in a Reservation, given as a dict, and compares. It needs no cluster."""
    return verify_record(dict(record))
