"""helm on a test cluster, and the chart as it is installed there: from the image of this very source."""

import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import yaml

from deploy.image.build import image_file
from jobtree import __version__
from tests.live.binaries import find
from tests.live.control_plane import ControlPlane
from tests.live.manifests import Manifest
from tests.live.packages import install_packages
from tests.live.real_nodes import RealNodes

REPOSITORY = Path(__file__).parents[2]
CHART = REPOSITORY / "deploy" / "helm" / "gpu-fleet"
RELEASE = "jobtree"
NAMESPACE = "jobtree-system"
HELM_SECONDS = 600
SERVER = ("--kube-version=1.36.3", "--api-versions=admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy")
"""What ``helm template`` is told of a server that it does not ask."""


def manager_image() -> Path:
    """The image, tagged with the version, as a file to import; built first if need be."""
    install_packages()
    return image_file(__version__)


@cache
def rendered(*arguments: str, chart: Path = CHART, server: Sequence[str] = SERVER) -> str:
    """What the chart would install, as YAML."""
    printed = helm("template", RELEASE, str(chart), f"--namespace={NAMESPACE}", *server, *arguments)
    assert printed.returncode == 0, printed.stderr
    return printed.stdout


def render(*arguments: str, chart: Path = CHART, server: Sequence[str] = SERVER) -> list[Manifest]:
    """What the chart would install."""
    return documents(rendered(*arguments, chart=chart, server=server))


def documents(text: str) -> list[Manifest]:
    """The objects in YAML, by the fast reader: the definitions are long."""
    return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]


def helm(
    *arguments: str, plane: ControlPlane | None = None, directory: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs helm, as the administrator of a cluster where one is given."""
    command: list[str | Path] = [find("helm"), *arguments]
    environment = _environment(plane) if plane else None
    return subprocess.run(
        command,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=HELM_SECONDS,
    )


def _environment(plane: ControlPlane) -> dict[str, str]:
    """Nothing of helm's is kept outside the cluster's directory."""
    home = plane.directory / "helm"
    return plane.environment() | {
        "HELM_CACHE_HOME": str(home),
        "HELM_CONFIG_HOME": str(home),
        "HELM_DATA_HOME": str(home),
    }


def site_values(nodes: RealNodes) -> list[str]:
    """What is particular to the tests' nodes: there is no kube-proxy, and only they run real containers."""
    host, port = nodes.api_server
    return [
        f"--set=apiServer.host={host}",
        f"--set=apiServer.port={port}",
        f"--set=nodeSelector.kubernetes\\.io/hostname={nodes.nodes[0].name}",
    ]
