"""The cluster that is used where none is named."""

import os
from contextvars import ContextVar

from jobtree.client import STATE_VARIABLE
from jobtree.client.backends.backend import Backend
from jobtree.client.source.live_cluster import ClusterName

CURRENT: ContextVar[Backend | None] = ContextVar("jobtree_cluster", default=None)


def current_backend() -> Backend:
    """Returns the cluster of the enclosing ``with`` block, else of ``JOBTREE_STATE`` or the kubeconfig."""
    return CURRENT.get() or open_backend("", ClusterName())


def open_backend(state: str, name: ClusterName) -> Backend:
    """Opens a state file or a live cluster; if neither is named, as the command line chooses."""
    if not state and name == ClusterName(namespace=name.namespace):
        state = os.environ.get(STATE_VARIABLE, "")
    if state:
        from jobtree.client.backends.simulated_backend import SimulatedBackend  # noqa: PLC0415  it loads slowly

        return SimulatedBackend(state, name.namespace)
    from jobtree.client.backends.live_backend import LiveBackend  # noqa: PLC0415  a simulation needs no sockets

    return LiveBackend(name)
