"""A manager that starts too early, or may not do everything: it says what is missing, and does the rest."""

from collections.abc import Iterator
from http.client import HTTPConnection
from itertools import count
from pathlib import Path

import pytest
import yaml

from jobtree.manager.process.health import NO_POLICY
from tests.live.control_plane import ControlPlane
from tests.live.fleet import Fleet
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
    set_policy,
)
from tests.live.manifests import Manifest
from tests.live.ports import free_port
from tests.live.process import wait_until

RBAC = "/apis/rbac.authorization.k8s.io/v1"
USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
NAMES = (f"one{number}" for number in count(1))
REMEDY = "deploy/kustomize/base/rbac.yaml"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane() as running:
        yield running


@pytest.fixture(scope="module")
def fleet(plane: ControlPlane) -> Fleet:
    plane.start_controllers()
    return plane.kwok()


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
    """The first of these tests: the others leave the kinds behind."""
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


@pytest.fixture
def kubeconfig(plane: ControlPlane, fleet: Fleet) -> Iterator[Path]:
    """The manager's, of an account that has all its rights again when the test is over."""
    assert fleet is not None
    yield install(plane)
    apply_base(plane)


def rules_of(kind: str) -> list[Manifest]:
    documents = [one for one in yaml.safe_load_all((BASE / "rbac.yaml").read_text()) if one["kind"] == kind]
    return [rule for one in documents if one["metadata"]["name"] == ACCOUNT for rule in one["rules"]]


def take_away(plane: ControlPlane, resource: str, *verbs: str, kind: str = "ClusterRole") -> None:
    """The administrator forgot a resource in the manager's role, or these verbs of it."""
    where = f"{RBAC}/namespaces/{NAMESPACE}" if kind == "Role" else RBAC
    rules = rules_of(kind)
    (whole,) = [rule for rule in rules if rule["resources"] == [resource]]
    left = [verb for verb in whole["verbs"] if verbs and verb not in verbs]
    kept = [rule for rule in rules if rule != whole] + ([{**whole, "verbs": left}] if left else [])
    answer = plane.rest.merge(f"{where}/{kind.lower()}s/{ACCOUNT}", {"rules": kept})
    assert answer.accepted, answer.message
    gone = {**whole, "verbs": [verb for verb in whole["verbs"] if verb not in left]}
    namespace = NAMESPACE if kind == "Role" else ""
    wait_until(lambda: not may(plane, USER, gone, namespace), "the authorizer knows")


def starting(plane: ControlPlane, fleet: Fleet) -> Scene:
    """A Run that has all it needs to start."""
    scene = Scene(plane, fleet, next(NAMES))
    scene.nodes("nv-a", 1)
    scene.budget("a", 8)
    scene.run("r", "a", 8)
    return scene


def test_without_the_right_to_write_events_it_does_everything_else(
    plane: ControlPlane, fleet: Fleet, kubeconfig: Path
) -> None:
    take_away(plane, "events")
    with Manager(plane, kubeconfig) as manager:
        starting(plane, fleet).await_running("r", 1)
        wait_until(lambda: told(manager, "events cannot be written"), "it says what it may not do")


def test_without_the_right_to_see_leases_it_plans_nothing_until_it_has_it(
    plane: ControlPlane, fleet: Fleet, kubeconfig: Path
) -> None:
    take_away(plane, "gpuleases")
    with Manager(plane, kubeconfig) as manager:
        wait_until(lambda: told(manager, "no permission to list and watch gpuleases"), "it says which")
        assert not manager.said("the cluster is read")
        apply_base(plane)
        starting(plane, fleet).await_running("r", 1)


def test_without_the_right_to_make_pods_runs_wait_for_it_and_none_fails(
    plane: ControlPlane, fleet: Fleet, kubeconfig: Path
) -> None:
    take_away(plane, "pods", "create")
    with Manager(plane, kubeconfig) as manager:
        scene = starting(plane, fleet)
        wait_until(lambda: told(manager, "a pod could not be made"), "it says what it may not do")
        wait_until(lambda: "PodRefused" in scene.events("r"), "so does the Run")
        apply_base(plane)
        scene.await_running("r", 1)
        assert (scene.phase("r"), scene.status("r").get("restarts", 0)) == ("Running", 0)


def test_without_the_right_to_see_its_policy_it_goes_by_the_defaults_and_says_so(
    plane: ControlPlane, fleet: Fleet, kubeconfig: Path
) -> None:
    take_away(plane, "configmaps", kind="Role")
    template = {"spec": {"containers": [{"name": "main", "image": "train:1"}]}}  # the defaults have none
    with Manager(plane, kubeconfig) as manager:
        scene = Scene(plane, fleet, next(NAMES))
        scene.nodes("nv-a", 1)
        scene.budget("a", 8)
        scene.run("r", "a", 8, template=template)
        scene.await_running("r", 1)
        wait_until(lambda: told(manager, "no permission to list and watch configmaps"), "it says which")


def told(manager: Manager, what: str) -> bool:
    """Whether it has said so, and what an administrator has to do."""
    lines = [line for line in manager.lines() if line["message"] == what]
    return any(REMEDY in str(line.get("remedy", "")) for line in lines)


def test_a_policy_that_cannot_be_read_is_told_with_its_field(
    plane: ControlPlane, fleet: Fleet, kubeconfig: Path
) -> None:
    with Manager(plane, kubeconfig) as manager:
        starting(plane, fleet).await_running("r", 1)
        set_policy(plane, "maxNotice: soon\n")
        wait_until(lambda: manager.said("a ConfigMap cannot be read and is left out"), "it is told")
        assert manager.said("maxNotice")
        starting(plane, fleet).await_running("r", 1)  # by the template of the policy before
    port = free_port()
    with Manager(plane, kubeconfig, f"--health-address=127.0.0.1:{port}"):
        waiting = starting(plane, fleet)
        wait_until(lambda: NO_POLICY in ask(port, "/readyz")[1], "a new one decides nothing by the defaults")
        assert "maxNotice" in ask(port, "/readyz")[1]
        set_policy(plane)
        waiting.await_running("r", 1)
