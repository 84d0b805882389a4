"""The life of an installation: the chart on a real node, from the image of this source, until it is removed.

The tests are one story, told in order: each goes on from where the one before has left the cluster.
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
from tests.live import outage
from tests.live.binaries import find_all
from tests.live.cluster import PROGRAMS, REAL_PROGRAMS
from tests.live.control_plane import ControlPlane
from tests.live.helm import CHART, NAMESPACE, RELEASE, REPOSITORY, helm, manager_image, site_values
from tests.live.images import PYTHON
from tests.live.managing import ACCOUNT, Scene
from tests.live.manifests import API_VERSION
from tests.live.packages import why_no_real_nodes
from tests.live.process import wait_until
from tests.live.real_nodes import RealNodes

FLAVOR = "GPU-site"
LABELS = {"region": "r", "cluster": "c", "fabric.domain": "nv-real", "gpu.flavor": FLAVOR}
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{ACCOUNT}"
ELECTION = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{ACCOUNT}"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/runs.rq.davidlangworthy.io"
WEBHOOK = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/jobtree-webhook"
SLEEPER = {
    "spec": {
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": PYTHON, "command": ["sleep", "100000"]}],
    }
}
SECONDS = 240


class Site:
    """A cluster with one real node, an administrator with helm, and a team."""

    def __init__(self, nodes: RealNodes) -> None:
        self.plane: ControlPlane = nodes.plane
        self.rest = nodes.plane.rest
        self.values = [f"--set=image.tag={__version__}", *site_values(nodes)]
        self._api_server, self._node = nodes.api_server, nodes.nodes[0].name

    def helm(self, *arguments: str, check: bool = True) -> str:
        done = helm(*arguments, f"--namespace={NAMESPACE}", plane=self.plane)
        if check and done.returncode != 0:
            raise AssertionError(f"helm {' '.join(arguments)}:\n{done.stderr}\n{self.plane.logs()}")
        return done.stdout + done.stderr

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
        """What a command inside a manager's container prints, or why it could not."""
        done = self.plane.kubectl(
            *("exec", "-n", NAMESPACE, f"deployment/{ACCOUNT}", "--", *command), check=False
        )
        return done.stdout + done.stderr

    def patch(self, kind: str, name: str, container: str) -> dict[str, Any]:
        """For kustomize, what ``values`` are for helm."""
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

    def offer_volume(self) -> None:
        """A volume that all pods can mount, which waits to be claimed."""
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

    def trusted(self) -> set[str]:
        """The authorities by which the API server knows the webhook: one, once the manager has written it."""
        hooks = self.rest.get(WEBHOOK).body["webhooks"]
        found = {hook["clientConfig"].get("caBundle", "") for hook in hooks}
        assert len(found) == 1
        assert "" not in found
        return found

    def await_leader(self) -> str:
        """A pod of the Deployment leads; its name."""

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
    find_all([*PROGRAMS, *REAL_PROGRAMS, "helm"])
    image = manager_image()
    with ExitStack() as stack:
        plane = stack.enter_context(ControlPlane())
        plane.start_controllers(controllers="*")
        plane.start_scheduler()
        yield Site(plane.real_nodes(1, labels=LABELS, images=[image]))


@pytest.fixture(scope="module")
def team(site: Site) -> Scene:
    scene = Scene(site.plane, None, "team")
    scene.flavor = FLAVOR
    return scene


def test_the_chart_installs_leads_and_starts_a_run(site: Site, team: Scene) -> None:
    said = site.install()
    assert "kubectl runs topology" in said
    wait_until(lambda: ready_replicas(site) == 2, "both are ready", SECONDS)
    site.await_leader()
    team.budget("a", 8)
    team.run("first", "a", 2, template=SLEEPER)
    team.run("second", "a", 2, template=SLEEPER)
    team.await_running("first", 1, within=SECONDS)
    team.await_running("second", 1, within=SECONDS)


def ready_replicas(site: Site) -> int:
    ready: int = site.rest.get(DEPLOYMENT).body["status"].get("readyReplicas", 0)
    return ready


def test_the_manager_runs_without_root_and_writes_nothing_into_its_image(site: Site) -> None:
    assert site.in_manager("python3", "-c", "import os; print(os.getuid(), os.getgid())") == "65532 65532\n"
    assert "Read-only file system" in site.in_manager("python3", "-c", "open('/opt/x', 'w')")
    assert "no such file" in site.in_manager("/bin/sh", "-c", "true")
    assert "kubectl runs" in site.in_manager("kubectl-runs", "--help")
    assert "team/first" in site.in_manager("kubectl-runs", "state", "--all")
    wait_until(lambda: ready_replicas(site) == 2, "both are ready", SECONDS)
    for pod in site.pods():
        (status,) = pod["status"]["containerStatuses"]
        assert status["restartCount"] == 0


def test_an_upgrade_reaches_the_kinds_and_a_rollback_takes_it_back(
    site: Site, team: Scene, tmp_path: Path
) -> None:
    newer = tmp_path / "gpu-fleet"
    shutil.copytree(CHART, newer)
    definition = newer / "templates" / "generated" / "crd-runs.yaml"
    shown = "    categories:\n"
    assert shown in definition.read_text()
    definition.write_text(definition.read_text().replace(shown, f"{shown}    - newer\n"))
    before, trusted = team.leases("first"), site.trusted()
    site.upgrade(newer, "--set=replicas=1")
    assert "newer" in site.rest.get(DEFINITION).body["spec"]["names"]["categories"]
    assert site.rest.get(DEPLOYMENT).body["spec"]["replicas"] == 1
    site.await_leader()
    site.helm("rollback", RELEASE, "1", "--wait", "--timeout=240s")
    assert "newer" not in site.rest.get(DEFINITION).body["spec"]["names"]["categories"]
    assert site.rest.get(DEPLOYMENT).body["spec"]["replicas"] == 2
    assert (team.leases("first"), site.trusted()) == (before, trusted)
    assert team.phase("first") == "Running"


def test_an_upgrade_outlives_an_api_server_that_restarts(site: Site, team: Scene) -> None:
    first = threading.Thread(target=lambda: site.upgrade(CHART, "--set=checkSeconds=20", check=False))
    first.start()
    wait_until(lambda: "pending-upgrade" in history(site), "the upgrade has begun", SECONDS)
    outage.restart(site.plane)
    first.join()
    if history(site)[-1].startswith("pending"):  # helm had no time to say how it ended
        site.helm("rollback", RELEASE, "--wait", "--timeout=240s")
    site.upgrade(CHART, "--set=checkSeconds=20")
    assert history(site)[-1] == "deployed"
    (container,) = site.rest.get(DEPLOYMENT).body["spec"]["template"]["spec"]["containers"]
    assert "--check-seconds=20" in container["args"]
    site.await_leader()
    assert team.phase("first") == "Running"


def history(site: Site) -> list[str]:
    """How each revision stands, the newest last."""
    printed = site.helm("history", RELEASE, "--output=json", check=False)
    try:
        return [revision["status"] for revision in json.loads(printed)]
    except json.JSONDecodeError:  # the server is away
        return [""]


def test_an_uninstall_keeps_what_is_the_teams_and_nothing_hangs(site: Site, team: Scene) -> None:
    site.helm("uninstall", RELEASE, "--timeout=240s")
    wait_until(lambda: site.pods() == [], "the managers are gone", SECONDS)
    assert site.rest.get(DEPLOYMENT).status == 404
    assert {len(team.leases("first")), len(team.running("first"))} == {1}
    assert site.rest.get(f"/apis/{API_VERSION}/budgets/team-a").accepted
    leftovers = site.plane.kubectl(
        *("get", "clusterroles,clusterrolebindings,jobs,serviceaccounts", "-n", NAMESPACE, "-o", "name")
    )
    assert "jobtree" not in leftovers.stdout
    team.cancel("first")
    wait_until(lambda: site.rest.get(team.path("first")).status == 404, "the Run is gone", SECONDS)
    wait_until(lambda: team.pods("first") == [], "its pods are gone", SECONDS)


def test_installed_again_it_takes_up_what_it_finds(site: Site, team: Scene) -> None:
    site.offer_volume()
    site.install("--set=archive.enabled=true")
    team.budget("b", 1)  # who is ready is trusted by the API server, though its certificate is an old one
    writable = "import os; print(os.access('/var/lib/jobtree/archive', os.W_OK))"
    assert site.in_manager("python3", "-c", writable) == "True\n"
    wait_until(lambda: "open" not in team.endings("first"), "the lease of a Run that is gone ends", SECONDS)
    assert team.endings("second") == ["open"]
    team.run("third", "a", 8 - 2, template=SLEEPER)
    team.await_running("third", 1, within=SECONDS)
    team.cancel("second")
    wait_until(lambda: site.rest.get(team.path("second")).status == 404, "a Run can be deleted", SECONDS)
    wait_until(lambda: "open" not in team.endings("second"), "its lease ends", SECONDS)


def test_told_to_keep_nothing_it_leaves_nothing(site: Site, team: Scene) -> None:
    site.upgrade(CHART, "--set=crds.keep=false", "--set=archive.enabled=true")
    site.helm("uninstall", RELEASE, "--wait", "--timeout=240s")
    assert site.rest.get(DEFINITION).status == 404
    assert site.rest.get(f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims/jobtree-archive").accepted
    wait_until(lambda: team.pods("third") == [], "the pods of its Runs are gone", SECONDS)


def kustomization(directory: Path, resource: str, patch: dict[str, Any]) -> str:
    """What is installed with kustomize, with pods that find their way about the tests' nodes."""
    made = directory / f"site-{Path(resource).name}"
    made.mkdir()
    target = {"kind": "Job" if resource == "uninstall" else "Deployment"}
    whole = {"resources": [f"../{resource}"], "patches": [{"target": target, "patch": json.dumps(patch)}]}
    (made / "kustomization.yaml").write_text(json.dumps(whole))
    return str(made)


def test_kustomize_installs_it_and_takes_it_away_and_nothing_hangs(site: Site, tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "deploy" / "kustomize", tmp_path, dirs_exist_ok=True)
    kubectl, team = site.plane.kubectl, Scene(site.plane, None, "kustomized")
    team.flavor = FLAVOR
    dev = kustomization(tmp_path, "overlays/dev", site.patch("Deployment", ACCOUNT, "manager"))
    release = kustomization(tmp_path, "uninstall", site.patch("Job", "jobtree-uninstall", "uninstall"))
    kubectl("apply", "-f", str(REPOSITORY / "config" / "crd"))
    kubectl("apply", "-k", dev)
    wait_until(lambda: ready_replicas(site) == 1, "it is ready", SECONDS)
    site.await_leader()
    team.budget("a", 8)
    team.run("runs", "a", 2, template=SLEEPER)
    team.await_running("runs", 1, within=SECONDS)
    kubectl("apply", "-k", release)
    kubectl("wait", "job/jobtree-uninstall", "-n", NAMESPACE, "--for=condition=complete", "--timeout=150s")
    kubectl("delete", "-k", release)
    kubectl("delete", "-k", dev, "--timeout=150s")
    assert site.rest.get(f"/api/v1/namespaces/{NAMESPACE}").status == 404
    assert site.rest.get(f"/apis/{API_VERSION}/budgets/kustomized-a").accepted
    assert (team.endings("runs"), len(team.running("runs"))) == (["open"], 1)
    kubectl("delete", "namespace", "kustomized", "--timeout=150s")
