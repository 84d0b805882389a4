"""The files that a real node is made from: what its containerd, its network and its kubelet are told."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.live.binaries import find
from tests.live.certificates import private_file
from tests.live.images import PAUSE
from tests.live.machine import RUNTIME_SOCKET
from tests.live.packages import cni_directory

if TYPE_CHECKING:
    from tests.live.control_plane import ControlPlane

LEASE_SECONDS = 8
"""A kubelet renews its node lease four times in this time."""

# The cgroup hierarchy is the machine's, whichever version it has; without privileges over all of it (as in
# a container) lowering an OOM score is refused, so containerd only ever raises them.
_CONTAINERD = """
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni_programs}"
    conf_dir = "{cni}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""


@dataclass(frozen=True)
class Place:
    """One node: its name, its place in the network and what it offers."""

    name: str
    directory: Path
    address: str
    bridge: str
    subnet: str
    gateway: str
    pods: tuple[str, str]
    """The first and the last address of its pods."""
    gpus: int
    labels: Mapping[str, str]
    images: tuple[Path, ...]


def write_files(plane: "ControlPlane", place: Place) -> Path:
    """Writes everything below the node's directory; returns the settings for ``machine``."""
    (place.directory / "cni").mkdir(parents=True)
    containerd = _write(place, "containerd.toml", _containerd(place))
    _write(place, "cni/10-bridge.conflist", json.dumps(_network(place)))
    kubelet = _write(place, "kubelet.json", json.dumps(_kubelet(plane, place)))
    settings = {
        "directory": str(place.directory),
        "images": [str(image) for image in place.images],
        "containerd": ["containerd", "--config", str(containerd)],
        "device_plugin": [str(find("gpu-device-plugin")), f"--count={place.gpus}"] if place.gpus else [],
        "kubelet": [
            str(find("kubelet")),
            f"--config={kubelet}",
            f"--kubeconfig={plane.kubeconfig(f'system:node:{place.name}', 'system:nodes')}",
            f"--hostname-override={place.name}",
            f"--node-ip={place.address}",
            f"--node-labels={','.join(f'{key}={value}' for key, value in place.labels.items())}",
        ],
    }
    return _write(place, "machine.json", json.dumps(settings))


def _write(place: Place, name: str, text: str) -> Path:
    return private_file(place.directory / name, text)


def _containerd(place: Place) -> str:
    return _CONTAINERD.format(
        socket=RUNTIME_SOCKET, pause=PAUSE, cni_programs=cni_directory(), cni=place.directory / "cni"
    )


def _network(place: Place) -> dict[str, Any]:
    first, last = place.pods
    pods = {"subnet": place.subnet, "rangeStart": first, "rangeEnd": last, "gateway": place.gateway}
    plugin = {
        "type": "bridge",
        "bridge": place.bridge,
        "hairpinMode": True,
        "ipam": {"type": "host-local", "ranges": [[pods]], "routes": [{"dst": "0.0.0.0/0"}]},
    }
    return {"cniVersion": "0.4.0", "name": "jobtree", "plugins": [plugin]}


def _kubelet(plane: "ControlPlane", place: Place) -> dict[str, Any]:
    """The machine is shared with others, so the node neither evicts nor cleans up for want of room."""
    serving = plane.authority.server(place.name, [place.address, place.name])
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": place.address,
        "healthzBindAddress": place.address,
        "tlsCertFile": str(_write(place, "kubelet.crt", serving.public)),
        "tlsPrivateKeyFile": str(_write(place, "kubelet.key", serving.key)),
        "authentication": {"x509": {"clientCAFile": str(plane.directory / "ca.crt")}},
        "containerRuntimeEndpoint": f"unix://{RUNTIME_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "clusterDNS": [place.gateway],
        "clusterDomain": "cluster.local",
        "resolvConf": str(_write(place, "resolv.conf", "")),
        "makeIPTablesUtilChains": False,
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "nodeLeaseDurationSeconds": LEASE_SECONDS,
        "nodeStatusUpdateFrequency": "2s",
    }
