"""Runs helm on a test cluster and renders the chart, whose image is built from this source."""

import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import yaml

from deploy.image.build import image_file
from jobtree import __version__
from tests.live.cluster.control_plane import ControlPlane
from tests.live.crds.manifests import Manifest
from tests.live.nodes.real_nodes import RealNodes
from tests.live.programs.debian_packages import install_packages
from tests.live.programs.program_finder import find_program
from tests.shown import REPOSITORY

CHART = REPOSITORY / "deploy" / "helm" / "gpu-fleet"
RELEASE = "jobtree"
NAMESPACE = "jobtree-system"
HELM_SECONDS = 600
SERVER_FLAGS = (
    "--kube-version=1.36.3",
    "--api-versions=admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy",
)
"""Flags for ``helm template``, which does not ask a server for its version."""


def manager_image() -> Path:
    """Returns the file of the manager's image, tagged with the version, after building a missing one."""
    install_packages()
    return image_file(__version__)


@cache
def rendered(*arguments: str, chart: Path = CHART, server: Sequence[str] = SERVER_FLAGS) -> str:
    """Returns the rendered chart as YAML."""
    result = helm("template", RELEASE, str(chart), f"--namespace={NAMESPACE}", *server, *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def render(*arguments: str, chart: Path = CHART, server: Sequence[str] = SERVER_FLAGS) -> list[Manifest]:
    """Returns the objects of the rendered chart."""
    return yaml_documents(rendered(*arguments, chart=chart, server=server))


def yaml_documents(text: str) -> list[Manifest]:
    """Returns the objects in YAML, read with the C parser, because the CRDs are long."""
    return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]


def helm(
    *arguments: str, plane: ControlPlane | None = None, directory: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs helm; as the administrator of ``plane``, if that is given."""
    command: list[str | Path] = [find_program("helm"), *arguments]
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
    """Returns an environment in which helm keeps its files in the directory of the cluster."""
    home = plane.directory / "helm"
    return plane.environment() | {
        "HELM_CACHE_HOME": str(home),
        "HELM_CONFIG_HOME": str(home),
        "HELM_DATA_HOME": str(home),
    }


def node_values(nodes: RealNodes) -> list[str]:
    """Returns values for real nodes: the node of the manager, and the address of the API server."""
    host, port = nodes.api_server
    return [
        f"--set=apiServer.host={host}",
        f"--set=apiServer.port={port}",
        f"--set=nodeSelector.kubernetes\\.io/hostname={nodes.nodes[0].name}",
    ]
