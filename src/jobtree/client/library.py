"""The functions of ``import jobtree``. Each works on the cluster of the enclosing ``with`` block.

Without such a block it is the state file that ``JOBTREE_STATE`` names, else the cluster of the kubeconfig, as
in the command line.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from jobtree.client.backends.current_backend import current_backend, open_backend
from jobtree.client.backends.simulated_backend import SimulatedBackend
from jobtree.client.clusters import ClusterClient, SimulatedClusterClient
from jobtree.client.lottery.record_proof import Verification, verify_record
from jobtree.client.source.live_cluster import ClusterName
from jobtree.client.source.sample_cluster import starting_cluster
from jobtree.simulation.cluster.simulated_cluster import SimulatedCluster
from jobtree.snapshot.state_file import StateFile

P = ParamSpec("P")
T = TypeVar("T")


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


def on_current_cluster(method: Callable[Concatenate[ClusterClient, P], T]) -> Callable[P, T]:
    """Returns a method of clusters as a function that works on the current one."""

    @wraps(method)
    def function(*arguments: P.args, **options: P.kwargs) -> T:
        return method(current_cluster(), *arguments, **options)

    signature = inspect.signature(method)
    _, *parameters = signature.parameters.values()
    setattr(function, "__signature__", signature.replace(parameters=parameters))  # noqa: B010  what help() shows
    return function


run = on_current_cluster(ClusterClient.run)
runs = on_current_cluster(ClusterClient.runs)
budgets = on_current_cluster(ClusterClient.budgets)
reservations = on_current_cluster(ClusterClient.reservations)
leases = on_current_cluster(ClusterClient.leases)
plan = on_current_cluster(ClusterClient.plan)
submit = on_current_cluster(ClusterClient.submit)
timeline = on_current_cluster(ClusterClient.timeline)


def verify(record: Mapping[str, Any]) -> Verification:
    """Recomputes the lotteries in a Reservation, given as a dict, and compares. It needs no cluster."""
    return verify_record(dict(record))
