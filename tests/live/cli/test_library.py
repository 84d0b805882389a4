"""The Python library on a real API server: plan, submit, wait, refusals, tokens that expire, and cancel."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import jobtree
from jobtree.client.source import live_runs
from tests.live.cli.kubectl_user import KubectlUser
from tests.live.cli.user_cluster import UserCluster
from tests.live.cluster.rbac import bind_role
from tests.live.manager.tenant import Tenant


@pytest.fixture
def tenant(user_cluster: UserCluster) -> Tenant:
    tenant = user_cluster.create_tenant()
    tenant.add_nodes("nv", 2)
    tenant.create_budget("lab", 16)
    return tenant


@pytest.fixture
def researcher(user_cluster: UserCluster, tenant: Tenant, tmp_path: Path) -> KubectlUser:
    return user_cluster.researcher(tenant, tmp_path)


@pytest.fixture
def cluster(researcher: KubectlUser) -> Iterator[jobtree.ClusterClient]:
    with jobtree.cluster(kubeconfig=str(researcher.kubeconfig)) as cluster:
        yield cluster


def described(tenant: Tenant, name: str, gpus: int = 16, **fields: str) -> jobtree.Run:
    return jobtree.Run(name, owner=tenant.owner("lab"), gpu_type=tenant.flavor, gpus=gpus, **fields)  # type: ignore[arg-type]


def test_run_is_planned_submitted_followed_and_cancelled(
    tenant: Tenant, cluster: jobtree.ClusterClient
) -> None:
    first = described(tenant, "first")
    assert first.plan().starts
    first.submit().wait("Running", timeout=60)
    assert (first.namespace, first.status.phase) == (tenant.name, "Running")
    late = described(tenant, "second").submit()
    (answer,) = late.plan().runs
    assert {cause.reason for cause in answer.status.causes} & {"ConcurrencyExhausted", "NoFreeSlots"}
    assert [run.name for run in cluster.runs(tenant.owner("lab"))] == ["first", "second"]
    (lease,) = [row for row in jobtree.leases(owner=tenant.owner("lab")) if not row.end]
    assert (lease.run, lease.gpus) == (f"{tenant.name}/first", 16)
    waiting = threading.Thread(target=late.wait, kwargs={"timeout": 60})
    waiting.start()
    first.cancel()  # its GPUs are for the one that waits
    waiting.join(60)
    assert late.body["status"]["phase"] == "Running"
    assert late.explain().leases[0].opened == "Start"
    late.cancel()


def test_refusals_have_a_class_and_fields(
    tenant: Tenant, cluster: jobtree.ClusterClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(jobtree.ForbiddenError, match="jobtree-researcher"):
        described(tenant, "elsewhere", namespace="default").submit()
    with pytest.raises(jobtree.RefusedError, match="spend") as refused:
        jobtree.Run("theirs", owner="org:other", gpu_type=tenant.flavor, gpus=8).submit()
    assert refused.value.code in {403, 422}
    strange = described(tenant, "strange")
    strange.body["spec"]["resources"]["totalGPUs"] = -8
    monkeypatch.setattr(live_runs, "check_documents", lambda _: None)  # as in a client of another version
    with pytest.raises(jobtree.RefusedError, match="totalGPUs") as refused:
        strange.submit()
    assert [cause.field for cause in refused.value.causes] == ["spec.resources.totalGPUs"]
    with pytest.raises(jobtree.NotFoundError):
        cluster.run("nobody")


def test_wait_raises_when_the_token_expires_meanwhile(
    user_cluster: UserCluster, tenant: Tenant, researcher: KubectlUser, tmp_path: Path
) -> None:
    plane, name = user_cluster.plane, tenant.name
    plane.kubectl("create", "serviceaccount", "notebook", "-n", name)
    bind_role(plane, "jobtree-planner", f"system:serviceaccount:{name}:notebook")
    config = yaml.safe_load(researcher.kubeconfig.read_text())
    token = plane.kubectl("create", "token", "notebook", "-n", name).stdout.strip()
    config["users"][0]["user"] = {"token": token}
    kubeconfig = tmp_path / "notebook.kubeconfig"
    kubeconfig.touch(mode=0o600)
    kubeconfig.write_text(yaml.safe_dump(config))
    tenant.create_run("never", "lab", 64)
    raised: list[Exception] = []

    def wait() -> None:
        try:
            jobtree.cluster(kubeconfig=str(kubeconfig)).run("never").wait(timeout=90)
        except jobtree.JobtreeError as error:
            raised.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    plane.kubectl("delete", "serviceaccount", "notebook", "-n", name)  # its tokens are refused from now on
    waiting.join(100)
    assert [type(error) for error in raised] == [jobtree.CredentialsError]


def test_other_programs_wait_for_conditions(tenant: Tenant, researcher: KubectlUser) -> None:
    """Kubectl wait, kstatus, Argo CD and Flux read Ready, Complete, Failed and Stalled."""
    tenant.create_run("epochs", "lab", 16)
    waited = researcher.kubectl("wait", "--for=condition=Ready", "run/epochs", "--timeout=60s")
    assert (waited.code, "condition met" in waited.out) == (0, True), waited
    assert researcher.kubectl_runs("wait", "epochs", "--timeout", "60s").code == 0
    tenant.await_running_pods("epochs", 2)
    tenant.finish("epochs")
    waited = researcher.kubectl("wait", "--for=condition=Complete", "run/epochs", "--timeout=60s")
    assert waited.code == 0, waited
    assert researcher.kubectl_runs("wait", "epochs", "--for", "Completed").out.endswith("is Completed\n")
    conditions = {one["type"]: one["status"] for one in tenant.status("epochs")["conditions"]}
    assert (conditions["Ready"], conditions["Complete"], "Stalled" in conditions) == ("True", "True", False)
