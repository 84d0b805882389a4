"""The custom resource definitions as the test cluster serves them, and the addresses of their objects."""

import subprocess
from pathlib import Path
from typing import Any

from tests.live.control_plane import ControlPlane
from tests.live.manifests import API_VERSION, Manifest
from tests.live.process import wait_until

DIRECTORY = Path(__file__).parents[2] / "config" / "crd"
GROUP = API_VERSION.partition("/")[0]
PLURALS = {"Budget": "budgets", "Run": "runs", "Reservation": "reservations", "Lease": "gpuleases"}


def apply_definitions(plane: ControlPlane) -> subprocess.CompletedProcess[str]:
    """Applies config/crd, as an administrator would. Its stderr shows what the server warns of."""
    return plane.kubectl("apply", "-f", str(DIRECTORY))


def await_definitions(plane: ControlPlane) -> None:
    """Waits until the server serves all four kinds."""
    for plural in PLURALS.values():
        plane.kubectl("wait", "--for=condition=Established", "--timeout=120s", f"crd/{plural}.{GROUP}")
        _await_collection(plane, plural)


def _await_collection(plane: ControlPlane, plural: str) -> None:
    def served() -> bool:
        return plane.rest.get(f"/apis/{API_VERSION}/{plural}").accepted

    wait_until(served, f"{plural} are served")


def definition(plane: ControlPlane, plural: str) -> Any:  # noqa: ANN401 - JSON
    return plane.rest.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.{GROUP}").body


def collection(manifest: Manifest) -> str:
    """Where objects such as this one are created."""
    namespace = manifest["metadata"].get("namespace")
    scope = f"namespaces/{namespace}/" if namespace else ""
    return f"/apis/{API_VERSION}/{scope}{PLURALS[manifest['kind']]}"


def address(manifest: Manifest) -> str:
    """Where this object is, once it has been created."""
    return f"{collection(manifest)}/{manifest['metadata']['name']}"
