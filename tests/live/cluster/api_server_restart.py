"""Restarts the API server of a test cluster."""

from collections.abc import Callable
from contextlib import suppress

from tests.live.cluster.control_plane import ControlPlane
from tests.live.cluster.server_process import wait_until

LIMIT_SECONDS = 120


def restart_api_server(plane: ControlPlane, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Kills the API server, calls ``meanwhile``, and starts it again with the same flags."""
    server = next(
        server for server in plane.servers if server.name == "kube-apiserver" and not server.has_ended
    )
    server.restart(meanwhile)

    def ready() -> bool:
        with suppress(OSError):
            return plane.rest.get("/readyz").accepted
        return False

    wait_until(ready, "the API server is ready again", LIMIT_SECONDS)
