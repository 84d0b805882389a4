"""Writes the configuration files of a real node: of its containerd, its network and its kubelet."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.live.cluster.certificates import private_file
from tests.live.nodes.container_images import PAUSE_IMAGE
from tests.live.nodes.kubelet_machine import RUNTIME_SOCKET
from tests.live.programs.debian_packages import cni_directory
from tests.live.programs.program_finder import find_program

if TYPE_CHECKING:
    from tests.live.cluster.control_plane import ControlPlane

LEASE_SECONDS = 8
"""The kubelet renews its node lease four times within this time."""

# The cgroup hierarchy is that of this machine, version 1 or 2. In a container, the kernel refuses to lower an
# OOM score, so containerd only raises them.
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
class NodeSettings:
    """One node: its name, its network addresses, and its GPUs, labels and images."""

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


def write_files(plane: "ControlPlane", settings: NodeSettings) -> Path:
    """Writes all files below the node's directory; returns the settings file of ``kubelet_machine``."""
    (settings.directory / "cni").mkdir(parents=True)
    containerd = _write(settings, "containerd.toml", _containerd(settings))
    _write(settings, "cni/10-bridge.conflist", json.dumps(_network(settings)))
    kubelet = _write(settings, "kubelet.json", json.dumps(_kubelet(plane, settings)))
    machine = {
        "directory": str(settings.directory),
        "images": [str(image) for image in settings.images],
        "containerd": ["containerd", "--config", str(containerd)],
        "device_plugin": [str(find_program("gpu-device-plugin")), f"--count={settings.gpus}"]
        if settings.gpus
        else [],
        "kubelet": [
            str(find_program("kubelet")),
            f"--config={kubelet}",
            f"--kubeconfig={plane.kubeconfig(f'system:node:{settings.name}', 'system:nodes')}",
            f"--hostname-override={settings.name}",
            f"--node-ip={settings.address}",
            f"--node-labels={','.join(f'{key}={value}' for key, value in settings.labels.items())}",
        ],
    }
    return _write(settings, "machine.json", json.dumps(machine))


def _write(settings: NodeSettings, name: str, text: str) -> Path:
    return private_file(settings.directory / name, text)


def _containerd(settings: NodeSettings) -> str:
    return _CONTAINERD.format(
        socket=RUNTIME_SOCKET, pause=PAUSE_IMAGE, cni_programs=cni_directory(), cni=settings.directory / "cni"
    )


def _network(settings: NodeSettings) -> dict[str, Any]:
    first, last = settings.pods
    pods = {"subnet": settings.subnet, "rangeStart": first, "rangeEnd": last, "gateway": settings.gateway}
    plugin = {
        "type": "bridge",
        "bridge": settings.bridge,
        "hairpinMode": True,
        "ipam": {"type": "host-local", "ranges": [[pods]], "routes": [{"dst": "0.0.0.0/0"}]},
    }
    return {"cniVersion": "0.4.0", "name": "jobtree", "plugins": [plugin]}


def _kubelet(plane: "ControlPlane", settings: NodeSettings) -> dict[str, Any]:
    """Returns the kubelet's configuration, without evictions, because other programs share this machine."""
    serving = plane.authority.server(settings.name, [settings.address, settings.name])
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": settings.address,
        "healthzBindAddress": settings.address,
        "tlsCertFile": str(_write(settings, "kubelet.crt", serving.public)),
        "tlsPrivateKeyFile": str(_write(settings, "kubelet.key", serving.key)),
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
        "clusterDNS": [settings.gateway],
        "clusterDomain": "cluster.local",
        "resolvConf": str(_write(settings, "resolv.conf", "")),
        "makeIPTablesUtilChains": False,
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "nodeLeaseDurationSeconds": LEASE_SECONDS,
        "nodeStatusUpdateFrequency": "2s",
    }
