"""A manager that starts too early, or may not do everything: it says what is missing, and does the rest."""

from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest
import yaml

from tests.live.control_plane import ControlPlane
from tests.live.guarding import may
from tests.live.managing import (
    ACCOUNT,
    BASE,
    NAMESPACE,
    Manager,
    Scene,
    apply_base,
    install,
    manager_kubeconfig,
)
from tests.live.ports import free_port
from tests.live.process import wait_until

ROLE = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{ACCOUNT}"


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    with ControlPlane() as running:
        yield running


def ask(port: int, path: str) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError:
        return 0, ""
    finally:
        connection.close()


def test_it_waits_for_its_kinds_and_says_so(plane: ControlPlane) -> None:
    apply_base(plane)
    port = free_port()
    with Manager(plane, manager_kubeconfig(plane), f"--health-address=127.0.0.1:{port}") as manager:
        wait_until(lambda: manager.said("the cluster does not know runs: apply config/crd"), "it says so")
        assert ask(port, "/healthz") == (200, "ok\n")
        code, why = ask(port, "/readyz")
        assert (code, "runs have not been seen yet" in why) == (503, True)
        install(plane)
        wait_until(lambda: manager.said("the cluster is read"), "it goes on by itself")
        wait_until(lambda: ask(port, "/readyz") == (200, "ok\n"), "it is ready")


def without(plane: ControlPlane, resource: str) -> None:
    """The administrator forgot one resource in the manager's role."""
    documents = yaml.safe_load_all((BASE / "rbac.yaml").read_text())
    rules = next(one for one in documents if one["kind"] == "ClusterRole")["rules"]
    (missing,) = [rule for rule in rules if rule["resources"] == [resource]]
    kept = [rule for rule in rules if rule != missing]
    assert plane.rest.merge(ROLE, {"rules": kept}).accepted
    account = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
    wait_until(lambda: not may(plane, account, missing, ""), "the authorizer knows")


def test_without_the_right_to_write_events_it_does_everything_else(plane: ControlPlane) -> None:
    kubeconfig = install(plane)
    plane.start_controllers()
    without(plane, "events")
    with Manager(plane, kubeconfig) as manager:
        start_one(plane)
        wait_until(lambda: manager.said("events cannot be written"), "it says what it may not do")


def test_without_the_right_to_see_leases_it_plans_nothing_until_it_has_it(plane: ControlPlane) -> None:
    kubeconfig: Path = install(plane)
    plane.start_controllers()
    without(plane, "gpuleases")
    with Manager(plane, kubeconfig) as manager:
        wait_until(lambda: manager.said("no permission to list and watch gpuleases"), "it says which")
        assert not manager.said("the cluster is read")
        apply_base(plane)
        start_one(plane)


def start_one(plane: ControlPlane) -> None:
    scene = Scene(plane, plane.kwok(), "one")
    scene.nodes("nv-a", 1)
    scene.budget("a", 8)
    scene.run("r", "a", 8)
    scene.await_running("r", 1)
