"""A manager without CRDs, or without one of its rights: it logs what is missing and does the rest."""

from collections.abc import Iterator
from http.client import HTTPConnection
from itertools import count
from pathlib import Path

import pytest
import yaml

from jobtree.manager.process.health import NO_POLICY
from tests.live.cluster.control_plane import ControlPlane
from tests.live.cluster.free_ports import free_port
from tests.live.cluster.rbac import RBAC, is_allowed
from tests.live.cluster.server_process import wait_until
from tests.live.crds.manifests import Manifest
from tests.live.manager.installation import (
    ACCOUNT,
    BASE,
    NAMESPACE,
    apply_base,
    install,
    manager_kubeconfig,
    set_policy,
)
from tests.live.manager.manager_process import Manager
from tests.live.manager.tenant import Tenant
from tests.live.nodes.fake_fleet import FakeFleet

USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
TENANT_NAMES = (f"startup{number}" for number in count(1))
REMEDY = "deploy/kustomize/base/rbac.yaml"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane() as running:
        yield running


@pytest.fixture(scope="module")
def fleet(plane: ControlPlane) -> FakeFleet:
    plane.start_controllers()
    return plane.start_fake_fleet()


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


def test_manager_waits_for_the_crds(plane: ControlPlane) -> None:
    """Must be the first test of this module, because the others install the CRDs."""
    apply_base(plane)
    port = free_port()
    with Manager(plane, manager_kubeconfig(plane), f"--health-address=127.0.0.1:{port}") as manager:
        wait_until(
            lambda: manager.has_logged("the cluster does not know runs: apply config/crd"),
            "the manager logs it",
        )
        assert ask(port, "/healthz") == (200, "ok\n")
        code, why = ask(port, "/readyz")
        assert (code, "runs have not been seen yet" in why) == (503, True)
        install(plane)
        wait_until(lambda: manager.has_logged("the cluster is read"), "the manager continues")
        wait_until(lambda: ask(port, "/readyz") == (200, "ok\n"), "the manager is ready")


@pytest.fixture
def kubeconfig(plane: ControlPlane, fleet: FakeFleet) -> Iterator[Path]:
    """The manager's kubeconfig; its account gets all rights back after the test."""
    assert fleet is not None
    yield install(plane)
    apply_base(plane)


def rules_of(kind: str) -> list[Manifest]:
    documents = yaml.safe_load_all((BASE / "rbac.yaml").read_text())
    roles = [role for role in documents if role["kind"] == kind and role["metadata"]["name"] == ACCOUNT]
    return [rule for role in roles for rule in role["rules"]]


def remove_right(plane: ControlPlane, resource: str, *verbs: str, kind: str = "ClusterRole") -> None:
    """Removes a resource from the manager's role or, if ``verbs`` are given, only these verbs of it."""
    root = f"{RBAC}/namespaces/{NAMESPACE}" if kind == "Role" else RBAC
    rules = rules_of(kind)
    (rule_of_resource,) = [rule for rule in rules if rule["resources"] == [resource]]
    kept_verbs = [verb for verb in rule_of_resource["verbs"] if verbs and verb not in verbs]
    kept_rules = [rule for rule in rules if rule != rule_of_resource] + (
        [{**rule_of_resource, "verbs": kept_verbs}] if kept_verbs else []
    )
    answer = plane.rest.merge(f"{root}/{kind.lower()}s/{ACCOUNT}", {"rules": kept_rules})
    assert answer.accepted, answer.message
    removed = {
        **rule_of_resource,
        "verbs": [verb for verb in rule_of_resource["verbs"] if verb not in kept_verbs],
    }
    namespace = NAMESPACE if kind == "Role" else ""
    wait_until(lambda: not is_allowed(plane, USER, removed, namespace), "the right is removed")


def tenant_with_run(plane: ControlPlane, fleet: FakeFleet) -> Tenant:
    """Creates a tenant with a Run that can start."""
    tenant = Tenant(plane, fleet, next(TENANT_NAMES))
    tenant.add_nodes("nv-a", 1)
    tenant.create_budget("a", 8)
    tenant.create_run("r", "a", 8)
    return tenant


def test_manager_starts_runs_without_the_right_to_write_events(
    plane: ControlPlane, fleet: FakeFleet, kubeconfig: Path
) -> None:
    remove_right(plane, "events")
    with Manager(plane, kubeconfig) as manager:
        tenant_with_run(plane, fleet).await_running_pods("r", 1)
        wait_until(
            lambda: logged_with_remedy(manager, "events cannot be written"), "the missing right is logged"
        )


def test_manager_plans_nothing_without_the_right_to_list_leases(
    plane: ControlPlane, fleet: FakeFleet, kubeconfig: Path
) -> None:
    remove_right(plane, "gpuleases")
    with Manager(plane, kubeconfig) as manager:
        wait_until(
            lambda: logged_with_remedy(manager, "no permission to list and watch gpuleases"),
            "the missing right is logged",
        )
        assert not manager.has_logged("the cluster is read")
        apply_base(plane)
        tenant_with_run(plane, fleet).await_running_pods("r", 1)


def test_runs_wait_without_the_right_to_create_pods(
    plane: ControlPlane, fleet: FakeFleet, kubeconfig: Path
) -> None:
    remove_right(plane, "pods", "create")
    with Manager(plane, kubeconfig) as manager:
        tenant = tenant_with_run(plane, fleet)
        wait_until(
            lambda: logged_with_remedy(manager, "a pod could not be made"), "the missing right is logged"
        )
        wait_until(lambda: "PodRefused" in tenant.event_reasons("r"), "the Run has an Event")
        apply_base(plane)
        tenant.await_running_pods("r", 1)
        assert (tenant.phase("r"), tenant.status("r").get("restarts", 0)) == ("Running", 0)


def test_manager_uses_the_default_policy_without_the_right_to_read_the_policy(
    plane: ControlPlane, fleet: FakeFleet, kubeconfig: Path
) -> None:
    remove_right(plane, "configmaps", kind="Role")
    template = {
        "spec": {"containers": [{"name": "main", "image": "train:1"}]}
    }  # the default policy has no template
    with Manager(plane, kubeconfig) as manager:
        tenant = Tenant(plane, fleet, next(TENANT_NAMES))
        tenant.add_nodes("nv-a", 1)
        tenant.create_budget("a", 8)
        tenant.create_run("r", "a", 8, template=template)
        tenant.await_running_pods("r", 1)
        wait_until(
            lambda: logged_with_remedy(manager, "no permission to list and watch configmaps"),
            "the missing right is logged",
        )


def logged_with_remedy(manager: Manager, message: str) -> bool:
    """Whether the manager has logged this message with the remedy."""
    lines = [line for line in manager.log_lines() if line["message"] == message]
    return any(REMEDY in str(line.get("remedy", "")) for line in lines)


def test_invalid_policy_is_reported_with_its_field(
    plane: ControlPlane, fleet: FakeFleet, kubeconfig: Path
) -> None:
    with Manager(plane, kubeconfig) as manager:
        tenant_with_run(plane, fleet).await_running_pods("r", 1)
        set_policy(plane, "maxNotice: soon\n")
        wait_until(
            lambda: manager.has_logged("a ConfigMap cannot be read and is left out"), "the manager logs it"
        )
        assert manager.has_logged("maxNotice")
        tenant_with_run(plane, fleet).await_running_pods("r", 1)  # with the template of the policy before
    port = free_port()
    with Manager(plane, kubeconfig, f"--health-address=127.0.0.1:{port}"):
        waiting = tenant_with_run(plane, fleet)
        wait_until(
            lambda: NO_POLICY in ask(port, "/readyz")[1], "a new manager decides nothing without a policy"
        )
        assert "maxNotice" in ask(port, "/readyz")[1]
        set_policy(plane)
        waiting.await_running_pods("r", 1)
