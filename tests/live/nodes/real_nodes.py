"""Real nodes: several kubelets on this machine that run real containers. They need root.

::

    with ControlPlane() as plane:
        plane.start_controllers(controllers="*")
        cluster = plane.start_real_nodes(2)
        cluster.nodes[0].kill()

Each node is a ``kubelet_machine`` with a containerd of its own. All share one network bridge, which has the
addresses of the nodes, of their pods (a range for each node) and of the DNS server. There is no kube-proxy:
pods reach each other by address and by the names of headless Services, and cluster IPs do not work. Pods
reach the API server at ``api_server``, through a port forwarder. A device plugin of the tests reports GPUs
that do not exist. Nodes without GPUs have no Jobtree labels either.
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

from tests.live.cluster.server_process import Server, wait_until
from tests.live.crds.manifests import FLAVOR
from tests.live.nodes import kubelet_machine, network_bridge, port_forwarder
from tests.live.nodes.container_images import image_files
from tests.live.nodes.node_config_files import NodeSettings, write_files
from tests.live.programs.debian_packages import install_packages

if TYPE_CHECKING:
    from tests.live.cluster.control_plane import ControlPlane

NETWORKS = range(200, 250)
"""The candidates for x in 10.x.0.0/16, the network of the bridge."""
GATEWAYS = tuple(f"10.{network}.0.1" for network in NETWORKS)
"""The candidates for the address at which pods reach the DNS server and the API server."""
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
    """One machine with a kubelet."""

    def __init__(self, plane: "ControlPlane", settings: NodeSettings) -> None:
        self.name = settings.name
        self.address = settings.address
        self._gpus = settings.gpus
        self._plane = plane
        self._settings_file = write_files(plane, settings)
        self._server: Server | None = None

    def start(self) -> None:
        """Starts the machine. Its disk is as it was; no container runs yet."""
        assert self._server is None or self._server.has_ended, f"{self.name} is running"
        run = [sys.executable, kubelet_machine.__file__, str(self._settings_file)]
        self._server = self._plane.launch(self.name, run, cleans_up=True)

    def kill(self) -> None:
        """Simulates a loss of power: the kubelet and all containers have ended when this returns."""
        assert self._server is not None, f"{self.name} was never started"
        self._server.stop()

    def remove_image(self, image: str) -> None:
        """Removes an image from the containerd of the machine, which has a mount namespace of its own."""
        config = str(self._settings_file.parent / "containerd.toml")
        pid = next(
            process.name
            for process in Path("/proc").iterdir()
            if process.name.isdigit() and is_containerd(process, config)
        )
        remove = ["ctr", "-n", "k8s.io", "images", "rm", "--sync", image]
        subprocess.run(["nsenter", "-t", pid, "-m", *remove], check=True, capture_output=True, timeout=60)

    def await_ready(self) -> None:
        """Waits until the node is Ready and reports its GPUs."""

        def ready() -> bool:
            assert self._server is not None
            self._server.check()
            answer = self._plane.rest.get(f"/api/v1/nodes/{self.name}")
            status = answer.body["status"] if answer.accepted else {}
            conditions = {
                condition["type"]: condition["status"] for condition in status.get("conditions", ())
            }
            gpus = int(status.get("allocatable", {}).get("nvidia.com/gpu", 0))
            return conditions.get("Ready") == "True" and gpus == self._gpus

        wait_until(ready, f"{self.name} is ready and has GPUs", NODE_SECONDS)


def is_containerd(process: Path, config: str) -> bool:
    """Whether this entry of /proc is a containerd with that configuration."""
    try:
        words = (process / "cmdline").read_text().split("\0")
    except OSError:
        return False  # it has ended
    return Path(words[0]).name == "containerd" and config in words


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
        self.api_server = self._start_port_forwarder()
        self.nodes = [
            RealNode(plane, self._node_settings(number, gpus, labels)) for number in range(1, count + 1)
        ]
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.await_ready()

    def _node_settings(self, number: int, gpus: int, labels: Mapping[str, str]) -> NodeSettings:
        default = {"region": "us-west", "cluster": "real", "fabric.domain": "nv-real", "gpu.flavor": FLAVOR}
        return NodeSettings(
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
        """Returns the address of a node or, for number 0, of the bridge and the DNS server."""
        return f"10.{self._network}.0.{number + 1}"

    def _make_bridge(self, count: int) -> tuple[int, str]:
        """Creates the bridge of the first unused network; no other process can then use it."""
        routes = subprocess.run(["ip", "-4", "route"], capture_output=True, text=True, check=True).stdout
        for network in NETWORKS:
            name = f"jobtree{network}"
            addresses = [f"10.{network}.0.{number + 1}/16" for number in range(count + 1)]
            if re.search(rf"^10\.{network}\.", routes, re.MULTILINE):
                continue
            make = [sys.executable, network_bridge.__file__, name, *addresses]
            server = self.plane.launch(name, make, cleans_up=True)
            if _came_up(server, name, addresses[-1]):
                return network, name
        raise RuntimeError(f"10.{NETWORKS[0]}.0.0/16 to 10.{NETWORKS[-1]}.0.0/16 are all in use here")

    def _start_port_forwarder(self) -> tuple[str, int]:
        """Starts the port forwarder; returns host and port at which pods reach the API server."""
        address, loopback_port = self._address(0), self.plane.url.rpartition(":")[2]
        server = self.plane.launch(
            "port-forwarder",
            [sys.executable, port_forwarder.__file__, address, str(API_SERVER_PORT), loopback_port],
        )

        def listening() -> bool:
            server.check()
            with closing(socket.socket()) as probe:
                return probe.connect_ex((address, API_SERVER_PORT)) == 0

        wait_until(listening, "pods can reach the API server")
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

        wait_until(ready, "the DNS server is ready", NODE_SECONDS)


def _came_up(server: Server, name: str, last_address: str) -> bool:
    """Waits for the bridge; returns whether this process created it, or its name was taken."""

    def up() -> bool:
        show = ["ip", "-4", "address", "show", "dev", name, "up"]
        shown = subprocess.run(show, capture_output=True, text=True, check=False).stdout
        return server.has_ended or last_address in shown

    wait_until(up, f"the bridge {name} is up")
    return not server.has_ended
