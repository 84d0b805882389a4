"""Taking an API server away from those who use it, for a while."""

from collections.abc import Callable
from contextlib import suppress

from tests.live.control_plane import ControlPlane
from tests.live.process import wait_until

LIMIT_SECONDS = 120


def restart(plane: ControlPlane, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Ends the API server without warning and starts it again with the same flags; etcd goes on."""
    server = next(one for one in plane.servers if one.name == "kube-apiserver" and not one.has_ended)
    server.restart(meanwhile)

    def ready() -> bool:
        with suppress(OSError):
            return plane.rest.get("/readyz").accepted
        return False

    wait_until(ready, "the API server is back", LIMIT_SECONDS)
