"""Jobtree shares a GPU fleet on Kubernetes between teams.

``import jobtree`` is its Python library::

    run = jobtree.Run("train", owner="org:ai:research", gpu_type="H100-80GB", gpus=16, checkpoint="10m")
    print(run.plan())
    run.submit().wait("Running")

A name is imported when it is first used, so that the import itself takes no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobtree.api.schema.problems import InputError as InputError, JobtreeError as JobtreeError
    from jobtree.client import aio as aio
    from jobtree.client.clusters import (
        ClusterClient as ClusterClient,
        SimulatedClusterClient as SimulatedClusterClient,
    )
    from jobtree.client.errors import (
        ArgumentError as ArgumentError,
        ConflictError as ConflictError,
        CredentialsError as CredentialsError,
        ForbiddenError as ForbiddenError,
        NoAnswerError as NoAnswerError,
        NotFoundError as NotFoundError,
        RefusedError as RefusedError,
        RunEndedError as RunEndedError,
        WaitError as WaitError,
        WaitTimeoutError as WaitTimeoutError,
    )
    from jobtree.client.library import (
        budgets as budgets,
        cluster as cluster,
        leases as leases,
        plan as plan,
        reservations as reservations,
        run as run,
        runs as runs,
        sample_cluster as sample_cluster,
        submit as submit,
        timeline as timeline,
        verify as verify,
    )
    from jobtree.client.run import Run as Run
    from jobtree.snapshot.state_file import StateFileError as StateFileError

__version__ = "0.1.0"

NAMES = {
    "api.schema.problems": ("InputError", "JobtreeError"),
    "client.clusters": ("ClusterClient", "SimulatedClusterClient"),
    "client.errors": (
        *("ArgumentError", "ConflictError", "CredentialsError", "ForbiddenError", "NoAnswerError"),
        *("NotFoundError", "RefusedError", "RunEndedError", "WaitError", "WaitTimeoutError"),
    ),
    "client.library": (
        *("budgets", "cluster", "leases", "plan", "reservations", "run", "runs", "sample_cluster"),
        *("submit", "timeline", "verify"),
    ),
    "client.run": ("Run",),
    "snapshot.state_file": ("StateFileError",),
}
MODULES = {name: module for module, names in NAMES.items() for name in names}


if not TYPE_CHECKING:  # a type checker knows the names from the imports above

    def __getattr__(name: str) -> object:
        if name == "aio":
            return import_module("jobtree.client.aio")
        if name not in MODULES:
            raise AttributeError(f"module 'jobtree' has no attribute {name!r}")
        return getattr(import_module(f"jobtree.{MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *MODULES, "aio"])
