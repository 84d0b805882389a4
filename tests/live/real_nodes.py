"""Real nodes: kubelets that run real containers, side by side on this machine. They need root.

::

    with ControlPlane() as plane:
        plane.start_controllers(controllers="*")
        cluster = plane.real_nodes(2)
        cluster.nodes[0].kill()

Each node is a ``machine`` with a containerd of its own. All share one bridge: it carries the address of each
node, the addresses of their pods (a range per node) and the cluster's DNS. There is no kube-proxy: pods reach
each other by address and by the names of headless services, and cluster IPs lead nowhere. The API server is
reached from pods at ``api_server``, a door on the bridge. GPUs come from a device plugin of the tests' own:
accounted for like real ones, but not there. Nodes without GPUs have no labels of Jobtree's, either.
"""

import re
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING

from tests.live import bridge, door, machine
from tests.live.images import image_files
from tests.live.manifests import FLAVOR
from tests.live.node_files import Place, write_files
from tests.live.packages import install_packages
from tests.live.process import Server, wait_until

if TYPE_CHECKING:
    from tests.live.control_plane import ControlPlane

NETWORKS = range(200, 250)
"""The second number of the addresses 10.x.0.0/16, one of which the bridge takes."""
GATEWAYS = tuple(f"10.{network}.0.1" for network in NETWORKS)
"""The addresses of which the bridge takes one, where pods reach the DNS and the API server."""
NODE_SECONDS = 120
READY_PORT = 8181
API_SERVER_PORT = 6443

_COREFILE = """
.:53 {{
  bind {address}
  errors
  ready {address}:{ready_port}
  kubernetes cluster.local {{
    kubeconfig {kubeconfig}
  }}
}}
"""


class RealNode:
    """One machine with a kubelet. It runs from the start."""

    def __init__(self, plane: "ControlPlane", place: Place) -> None:
        self.name = place.name
        self.address = place.address
        self._gpus = place.gpus
        self._plane = plane
        self._settings = write_files(plane, place)
        self._server: Server | None = None

    def start(self) -> None:
        """Switches the machine on. Its disk holds what it held before; nothing runs yet."""
        assert self._server is None or self._server.has_ended, f"{self.name} is running"
        run = [sys.executable, machine.__file__, str(self._settings)]
        self._server = self._plane.launch(self.name, run, cleans_up=True)

    def kill(self) -> None:
        """The machine loses power: the kubelet and all containers are gone when this returns."""
        assert self._server is not None, f"{self.name} was never started"
        self._server.stop()

    def await_ready(self) -> None:
        """Waits until the node reports itself ready, with its GPUs."""

        def ready() -> bool:
            assert self._server is not None
            self._server.check()
            answer = self._plane.rest.get(f"/api/v1/nodes/{self.name}")
            status = answer.body["status"] if answer.accepted else {}
            conditions = {one["type"]: one["status"] for one in status.get("conditions", ())}
            gpus = int(status.get("allocatable", {}).get("nvidia.com/gpu", 0))
            return conditions.get("Ready") == "True" and gpus == self._gpus

        wait_until(ready, f"{self.name} is ready and has GPUs", NODE_SECONDS)


class RealNodes:
    """The real nodes of one control plane, their network and their DNS."""

    def __init__(
        self,
        plane: "ControlPlane",
        count: int,
        gpus: int,
        labels: Mapping[str, str],
        images: Sequence[Path] = (),
    ) -> None:
        install_packages()
        self.images = [*image_files(), *images]
        self.plane = plane
        self._network, self.bridge = self._make_bridge(count)
        self._start_dns()
        self.api_server = self._open_door()
        self.nodes = [RealNode(plane, self._place(number, gpus, labels)) for number in range(1, count + 1)]
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.await_ready()

    def _place(self, number: int, gpus: int, labels: Mapping[str, str]) -> Place:
        default = {"region": "us-west", "cluster": "real", "fabric.domain": "nv-real", "gpu.flavor": FLAVOR}
        return Place(
            name=f"real-{number:02}",
            directory=self.plane.directory / f"real-{number:02}",
            address=self._address(number),
            bridge=self.bridge,
            subnet=f"10.{self._network}.0.0/16",
            gateway=self._address(0),
            pods=(f"10.{self._network}.{number}.1", f"10.{self._network}.{number}.254"),
            gpus=gpus,
            labels=(default if gpus else {}) | dict(labels),
            images=tuple(self.images),
        )

    def _address(self, number: int) -> str:
        """The bridge's own address, which is the DNS's, then the nodes'."""
        return f"10.{self._network}.0.{number + 1}"

    def _make_bridge(self, count: int) -> tuple[int, str]:
        """Takes the first network that nobody uses; making the bridge is what claims it."""
        routes = subprocess.run(["ip", "-4", "route"], capture_output=True, text=True, check=True).stdout
        for network in NETWORKS:
            name = f"jobtree{network}"
            addresses = [f"10.{network}.0.{number + 1}/16" for number in range(count + 1)]
            if re.search(rf"^10\.{network}\.", routes, re.MULTILINE):
                continue
            make = [sys.executable, bridge.__file__, name, *addresses]
            server = self.plane.launch(name, make, cleans_up=True)
            if _came_up(server, name, addresses[-1]):
                return network, name
        raise RuntimeError(f"10.{NETWORKS[0]}.0.0/16 to 10.{NETWORKS[-1]}.0.0/16 are all in use here")

    def _open_door(self) -> tuple[str, int]:
        """Host and port at which pods reach the API server."""
        address, inside = self._address(0), self.plane.url.rpartition(":")[2]
        server = self.plane.launch(
            "door", [sys.executable, door.__file__, address, str(API_SERVER_PORT), inside]
        )

        def opened() -> bool:
            server.check()
            with closing(socket.socket()) as probe:
                return probe.connect_ex((address, API_SERVER_PORT)) == 0

        wait_until(opened, "pods can reach the API server")
        return address, API_SERVER_PORT

    def _start_dns(self) -> None:
        address = self._address(0)
        corefile = self.plane.directory / "Corefile"
        kubeconfig = self.plane.admin_kubeconfig
        corefile.write_text(_COREFILE.format(address=address, ready_port=READY_PORT, kubeconfig=kubeconfig))
        server = self.plane.start("coredns", f"-conf={corefile}")

        def ready() -> bool:
            server.check()
            with closing(HTTPConnection(address, READY_PORT, timeout=5)) as connection:
                try:
                    connection.request("GET", "/ready")
                    return connection.getresponse().status == 200
                except (OSError, HTTPException):
                    return False

        wait_until(ready, "the DNS is ready", NODE_SECONDS)


def _came_up(server: Server, name: str, last_address: str) -> bool:
    """Whether the bridge is ours: it has its addresses, or the process has ended for it was taken."""

    def up() -> bool:
        show = ["ip", "-4", "address", "show", "dev", name, "up"]
        shown = subprocess.run(show, capture_output=True, text=True, check=False).stdout
        return server.has_ended or last_address in shown

    wait_until(up, f"the bridge {name} is up")
    return not server.has_ended
