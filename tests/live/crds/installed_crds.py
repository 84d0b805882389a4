"""Installs the CRDs of config/crd on a test cluster, and returns the API paths of their objects."""

import subprocess
from typing import Any

from tests.live.cluster.control_plane import ControlPlane
from tests.live.cluster.server_process import wait_until
from tests.live.crds.manifests import API_VERSION, GROUP, Manifest
from tests.shown import REPOSITORY

CRD_DIRECTORY = REPOSITORY / "config" / "crd"
PLURALS = {"Budget": "budgets", "Run": "runs", "Reservation": "reservations", "Lease": "gpuleases"}


def apply_crds(plane: ControlPlane) -> subprocess.CompletedProcess[str]:
    """Applies config/crd with kubectl, whose stderr contains the warnings of the API server."""
    return plane.kubectl("apply", "-f", str(CRD_DIRECTORY))


def await_crds(plane: ControlPlane) -> None:
    """Waits until the API server serves all four kinds."""
    for plural in PLURALS.values():
        plane.kubectl("wait", "--for=condition=Established", "--timeout=120s", f"crd/{plural}.{GROUP}")
        _await_collection(plane, plural)


def _await_collection(plane: ControlPlane, plural: str) -> None:
    def served() -> bool:
        return plane.rest.get(f"/apis/{API_VERSION}/{plural}").accepted

    wait_until(served, f"{plural} are served")


def crd_object(plane: ControlPlane, plural: str) -> Any:  # noqa: ANN401 - JSON
    return plane.rest.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.{GROUP}").body


def collection_path(manifest: Manifest) -> str:
    """Returns the path to which an object of this kind and namespace is posted."""
    namespace = manifest["metadata"].get("namespace")
    scope = f"namespaces/{namespace}/" if namespace else ""
    return f"/apis/{API_VERSION}/{scope}{PLURALS[manifest['kind']]}"


def object_path(manifest: Manifest) -> str:
    """Returns the path of this object."""
    return f"{collection_path(manifest)}/{manifest['metadata']['name']}"
