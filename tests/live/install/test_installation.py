"""An installation of the chart on a real node, with the image of this source, until it is removed.

The tests depend on each other: each continues with the cluster that the one before left.
"""

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from jobtree import __version__
from tests.live.cluster.api_server_restart import restart_api_server
from tests.live.cluster.control_plane import ControlPlane
from tests.live.cluster.server_process import wait_until
from tests.live.crds.manifests import API_VERSION
from tests.live.install.helm_chart import CHART, NAMESPACE, RELEASE, helm, manager_image, node_values
from tests.live.manager.installation import ACCOUNT
from tests.live.manager.tenant import Tenant
from tests.live.nodes.container_images import PYTHON_IMAGE
from tests.live.nodes.real_nodes import RealNodes
from tests.live.programs.build_recipes import CLUSTER_PROGRAMS, REAL_NODE_PROGRAMS
from tests.live.programs.debian_packages import why_no_real_nodes
from tests.live.programs.program_finder import find_programs
from tests.shown import REPOSITORY

FLAVOR = "GPU-site"
LABELS = {"region": "r", "cluster": "c", "fabric.domain": "nv-real", "gpu.flavor": FLAVOR}
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{ACCOUNT}"
ELECTION = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{ACCOUNT}"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/runs.rq.davidlangworthy.io"
WEBHOOK = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/jobtree-webhook"
SLEEPER = {
    "spec": {
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": PYTHON_IMAGE, "command": ["sleep", "100000"]}],
    }
}
SECONDS = 240


class Site:
    """A cluster with one real node, on which an administrator uses helm."""

    def __init__(self, nodes: RealNodes) -> None:
        self.plane: ControlPlane = nodes.plane
        self.rest = nodes.plane.rest
        self.values = [f"--set=image.tag={__version__}", *node_values(nodes)]
        self._api_server, self._node = nodes.api_server, nodes.nodes[0].name

    def helm(self, *arguments: str, check: bool = True) -> str:
        result = helm(*arguments, f"--namespace={NAMESPACE}", plane=self.plane)
        if check and result.returncode != 0:
            raise AssertionError(f"helm {' '.join(arguments)}:\n{result.stderr}\n{self.plane.logs()}")
        return result.stdout + result.stderr

    def install(self, *values: str) -> str:
        return self.helm(
            *("install", RELEASE, str(CHART), "--create-namespace", "--wait", "--timeout=240s"),
            *(*self.values, *values),
        )

    def upgrade(self, chart: Path, *values: str, check: bool = True) -> str:
        wait = ("--wait", "--timeout=240s")
        return self.helm("upgrade", RELEASE, str(chart), *wait, *self.values, *values, check=check)

    def pods(self) -> list[dict[str, Any]]:
        label = "app.kubernetes.io%2Fcomponent%3Dcontroller-manager"
        answer = self.rest.get(f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={label}")
        items: list[dict[str, Any]] = answer.body["items"]
        return items

    def in_manager(self, *command: str) -> str:
        """Runs a command in the container of a manager; returns its output and error."""
        result = self.plane.kubectl(
            *("exec", "-n", NAMESPACE, f"deployment/{ACCOUNT}", "--", *command), check=False
        )
        return result.stdout + result.stderr

    def patch(self, kind: str, name: str, container: str) -> dict[str, Any]:
        """Returns a patch for kustomize with the settings that ``values`` has for helm."""
        environment = [
            {"name": f"KUBERNETES_SERVICE_{word}", "value": str(value)}
            for word, value in zip(("HOST", "PORT"), self._api_server, strict=True)
        ]
        pod = {
            "nodeSelector": {"kubernetes.io/hostname": self._node},
            "containers": [{"name": container, "env": environment}],
        }
        version = "batch/v1" if kind == "Job" else "apps/v1"
        named = {"apiVersion": version, "kind": kind, "metadata": {"name": name}}
        return {**named, "spec": {"template": {"spec": pod}}}

    def create_volume(self) -> None:
        """Creates a volume that all pods can mount."""
        directory = self.plane.directory / "archive"
        directory.mkdir()
        directory.chmod(0o777)
        spec = {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteMany"],
            "hostPath": {"path": str(directory)},
        }
        answer = self.rest.post("/api/v1/persistentvolumes", {"metadata": {"name": "books"}, "spec": spec})
        assert answer.accepted, answer.message

    def ca_bundles(self) -> set[str]:
        """Returns the CA bundles of the webhook configuration; one, once the manager has written it."""
        hooks = self.rest.get(WEBHOOK).body["webhooks"]
        bundles = {hook["clientConfig"].get("caBundle", "") for hook in hooks}
        assert len(bundles) == 1
        assert "" not in bundles
        return bundles

    def await_leader(self) -> str:
        """Waits until a pod of the Deployment leads; returns its name."""

        def leader() -> str:
            answer = self.rest.get(ELECTION)
            holder = answer.body["spec"].get("holderIdentity", "") if answer.accepted else ""
            names = [pod["metadata"]["name"] for pod in self.pods()]
            return next((name for name in names if holder.startswith(f"{name}_")), "")

        wait_until(lambda: bool(leader()), "a pod of the Deployment leads", SECONDS)
        return leader()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    if why := why_no_real_nodes():
        pytest.skip(why)
    find_programs([*CLUSTER_PROGRAMS, *REAL_NODE_PROGRAMS, "helm"])
    image = manager_image()
    with ExitStack() as stack:
        plane = stack.enter_context(ControlPlane())
        plane.start_controllers(controllers="*")
        plane.start_scheduler()
        yield Site(plane.start_real_nodes(1, labels=LABELS, images=[image]))


@pytest.fixture(scope="module")
def team(site: Site) -> Tenant:
    tenant = Tenant(site.plane, None, "team")
    tenant.flavor = FLAVOR
    return tenant


def test_installed_chart_elects_a_leader_and_starts_runs(site: Site, team: Tenant) -> None:
    output = site.install()
    assert "kubectl runs topology" in output
    wait_until(lambda: ready_replicas(site) == 2, "both managers are ready", SECONDS)
    site.await_leader()
    team.create_budget("a", 8)
    team.create_run("first", "a", 2, template=SLEEPER)
    team.create_run("second", "a", 2, template=SLEEPER)
    team.await_running_pods("first", 1, within=SECONDS)
    team.await_running_pods("second", 1, within=SECONDS)


def test_run_without_a_template_holds_its_gpus_and_can_be_entered(site: Site, team: Tenant) -> None:
    team.create_run("plain", "a", 1)
    team.await_running_pods("plain", 1, within=SECONDS)
    (pod,) = team.running_pods("plain")
    name, program = pod["metadata"]["name"], "import os; print(os.environ['JOBTREE_RUN'])"
    entered = site.plane.kubectl("exec", "-n", team.name, name, "--", "python3", "-c", program)
    assert entered.stdout == "plain\n"
    team.cancel("plain")
    team.await_running_pods("plain", 0, within=SECONDS)


def ready_replicas(site: Site) -> int:
    ready: int = site.rest.get(DEPLOYMENT).body["status"].get("readyReplicas", 0)
    return ready


def test_manager_container_has_no_root_no_shell_and_a_read_only_file_system(site: Site) -> None:
    assert site.in_manager("python3", "-c", "import os; print(os.getuid(), os.getgid())") == "65532 65532\n"
    assert "Read-only file system" in site.in_manager("python3", "-c", "open('/opt/x', 'w')")
    assert "no such file" in site.in_manager("/bin/sh", "-c", "true")
    assert "kubectl runs" in site.in_manager("kubectl-runs", "--help")
    assert "team/first" in site.in_manager("kubectl-runs", "state", "--all")
    wait_until(lambda: ready_replicas(site) == 2, "both managers are ready", SECONDS)
    for pod in site.pods():
        (status,) = pod["status"]["containerStatuses"]
        assert status["restartCount"] == 0


def test_upgrade_changes_crds_and_rollback_restores_them(site: Site, team: Tenant, tmp_path: Path) -> None:
    newer = tmp_path / "gpu-fleet"
    shutil.copytree(CHART, newer)
    definition = newer / "templates" / "generated" / "crd-runs.yaml"
    categories = "    categories:\n"
    assert categories in definition.read_text()
    definition.write_text(definition.read_text().replace(categories, f"{categories}    - newer\n"))
    leases, bundles = team.leases("first"), site.ca_bundles()
    site.upgrade(newer, "--set=replicas=1")
    assert "newer" in site.rest.get(DEFINITION).body["spec"]["names"]["categories"]
    assert site.rest.get(DEPLOYMENT).body["spec"]["replicas"] == 1
    site.await_leader()
    site.helm("rollback", RELEASE, "1", "--wait", "--timeout=240s")
    assert "newer" not in site.rest.get(DEFINITION).body["spec"]["names"]["categories"]
    assert site.rest.get(DEPLOYMENT).body["spec"]["replicas"] == 2
    assert (team.leases("first"), site.ca_bundles()) == (leases, bundles)
    assert team.phase("first") == "Running"


def test_upgrade_succeeds_after_a_restart_of_the_api_server(site: Site, team: Tenant) -> None:
    first = threading.Thread(target=lambda: site.upgrade(CHART, "--set=checkSeconds=20", check=False))
    first.start()
    wait_until(lambda: "pending-upgrade" in history(site), "the upgrade has begun", SECONDS)
    restart_api_server(site.plane)
    first.join()
    if history(site)[-1].startswith("pending"):  # helm was interrupted before it recorded the result
        site.helm("rollback", RELEASE, "--wait", "--timeout=240s")
    site.upgrade(CHART, "--set=checkSeconds=20")
    assert history(site)[-1] == "deployed"
    (container,) = site.rest.get(DEPLOYMENT).body["spec"]["template"]["spec"]["containers"]
    assert "--check-seconds=20" in container["args"]
    site.await_leader()
    assert team.phase("first") == "Running"


def history(site: Site) -> list[str]:
    """Returns the status of each revision of the release, the newest last."""
    printed = site.helm("history", RELEASE, "--output=json", check=False)
    try:
        return [revision["status"] for revision in json.loads(printed)]
    except json.JSONDecodeError:  # the API server is restarting
        return [""]


def test_uninstall_keeps_runs_and_budgets_and_frees_finalizers(site: Site, team: Tenant) -> None:
    site.helm("uninstall", RELEASE, "--timeout=240s")
    wait_until(lambda: site.pods() == [], "the managers are deleted", SECONDS)
    assert site.rest.get(DEPLOYMENT).status == 404
    assert {len(team.leases("first")), len(team.running_pods("first"))} == {1}
    assert site.rest.get(f"/apis/{API_VERSION}/budgets/team-a").accepted
    leftovers = site.plane.kubectl(
        *("get", "clusterroles,clusterrolebindings,jobs,serviceaccounts", "-n", NAMESPACE, "-o", "name")
    )
    assert "jobtree" not in leftovers.stdout
    team.cancel("first")
    wait_until(lambda: site.rest.get(team.run_path("first")).status == 404, "the Run is deleted", SECONDS)
    wait_until(lambda: team.pods("first") == [], "its pods are deleted", SECONDS)


def test_second_installation_continues_with_existing_objects(site: Site, team: Tenant) -> None:
    site.create_volume()
    site.install("--set=archive.enabled=true")
    team.create_budget(
        "b", 1
    )  # a ready manager is trusted by the API server, although its certificate is old
    writable = "import os; print(os.access('/var/lib/jobtree/archive', os.W_OK))"
    assert site.in_manager("python3", "-c", writable) == "True\n"
    wait_until(
        lambda: "open" not in team.closure_reasons("first"), "the lease of a deleted Run is closed", SECONDS
    )
    assert team.closure_reasons("second") == ["open"]
    team.create_run("third", "a", 8 - 2, template=SLEEPER)
    team.await_running_pods("third", 1, within=SECONDS)
    team.cancel("second")
    wait_until(lambda: site.rest.get(team.run_path("second")).status == 404, "the Run is deleted", SECONDS)
    wait_until(lambda: "open" not in team.closure_reasons("second"), "its lease is closed", SECONDS)


def test_uninstall_deletes_crds_when_told_to(site: Site, team: Tenant) -> None:
    site.upgrade(CHART, "--set=crds.keep=false", "--set=archive.enabled=true")
    site.helm("uninstall", RELEASE, "--wait", "--timeout=240s")
    assert site.rest.get(DEFINITION).status == 404
    assert site.rest.get(f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims/jobtree-archive").accepted
    wait_until(lambda: team.pods("third") == [], "the pods of the Runs are deleted", SECONDS)


def kustomization(directory: Path, resource: str, patch: dict[str, Any]) -> str:
    """Writes a kustomization with a patch for the tests' nodes; returns its directory."""
    target_directory = directory / f"site-{Path(resource).name}"
    target_directory.mkdir()
    target = {"kind": "Job" if resource == "uninstall" else "Deployment"}
    document = {"resources": [f"../{resource}"], "patches": [{"target": target, "patch": json.dumps(patch)}]}
    (target_directory / "kustomization.yaml").write_text(json.dumps(document))
    return str(target_directory)


def test_kustomize_overlay_installs_and_uninstalls(site: Site, tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "deploy" / "kustomize", tmp_path, dirs_exist_ok=True)
    kubectl, team = site.plane.kubectl, Tenant(site.plane, None, "kustomized")
    team.flavor = FLAVOR
    dev = kustomization(tmp_path, "overlays/dev", site.patch("Deployment", ACCOUNT, "manager"))
    release = kustomization(tmp_path, "uninstall", site.patch("Job", "jobtree-uninstall", "uninstall"))
    kubectl("apply", "-f", str(REPOSITORY / "config" / "crd"))
    kubectl("apply", "-k", dev)
    wait_until(lambda: ready_replicas(site) == 1, "the manager is ready", SECONDS)
    site.await_leader()
    team.create_budget("a", 8)
    team.create_run("runs", "a", 2, template=SLEEPER)
    team.await_running_pods("runs", 1, within=SECONDS)
    kubectl("apply", "-k", release)
    kubectl("wait", "job/jobtree-uninstall", "-n", NAMESPACE, "--for=condition=complete", "--timeout=150s")
    kubectl("delete", "-k", release)
    kubectl("delete", "-k", dev, "--timeout=150s")
    assert site.rest.get(f"/api/v1/namespaces/{NAMESPACE}").status == 404
    assert site.rest.get(f"/apis/{API_VERSION}/budgets/kustomized-a").accepted
    assert (team.closure_reasons("runs"), len(team.running_pods("runs"))) == (["open"], 1)
    kubectl("delete", "namespace", "kustomized", "--timeout=150s")
