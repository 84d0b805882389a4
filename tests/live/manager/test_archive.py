"""The archive: old leases leave the API server, and users with the right to read it still see them."""

import csv
import io
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from jobtree.archive.archive_directory import ArchiveDirectory
from jobtree.archive.archive_reader import read_archive
from tests.live.cli.kubectl_user import KubectlUser
from tests.live.cluster.control_plane import ControlPlane
from tests.live.cluster.free_ports import free_port
from tests.live.cluster.rbac import bind_role
from tests.live.cluster.server_process import wait_until
from tests.live.crds.manifests import Manifest
from tests.live.manager.installation import ACCOUNT, NAMESPACE, await_service_account, install, set_policy
from tests.live.manager.manager_process import Manager, http_get
from tests.live.manager.tenant import Tenant
from tests.live.nodes.fake_fleet import FakeFleet
from tests.live.programs.debian_packages import why_no_real_nodes

RETENTION = "leaseRetention: 1s\n"


def own_address() -> str:
    """Returns an address of this machine that is no loopback address, as Endpoints need. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane() as running:
        running.start_controllers()
        yield running


@pytest.fixture(scope="module")
def kubeconfig(plane: ControlPlane) -> Path:
    """The manager's kubeconfig, under a policy with a short leaseRetention."""
    path = install(plane)
    set_policy(plane, RETENTION)
    return path


@pytest.fixture(scope="module")
def fleet(plane: ControlPlane) -> FakeFleet:
    return plane.start_fake_fleet()


def point_service_to(plane: ControlPlane, address: str, port: int) -> None:
    """Creates the manager's Service with a process of this machine as its endpoint.

    An API server proxies only to pods, so this creates a pod with the address of this machine in its status.
    """
    await_service_account(plane, NAMESPACE)
    plane.kubectl(
        "delete", "service", ACCOUNT, "-n", NAMESPACE
    )  # the installed Service selects pods of the Deployment
    metadata = {"name": ACCOUNT, "namespace": NAMESPACE}
    root, ports = f"/api/v1/namespaces/{NAMESPACE}", [{"name": "http", "port": port}]
    confined = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    pod: Manifest = {
        "spec": {
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "main", "image": "none", "securityContext": confined}],
        }
    }
    target = {"kind": "Pod", **metadata}
    bodies: dict[str, Manifest] = {
        "services": {"spec": {"ports": ports}},
        "pods": pod,
        "endpoints": {"subsets": [{"addresses": [{"ip": address, "targetRef": target}], "ports": ports}]},
    }
    for kind, body in bodies.items():
        answer = plane.rest.post(f"{root}/{kind}", {"metadata": metadata, **body})
        assert answer.accepted, answer.message
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    assert plane.rest.merge(f"{root}/pods/{ACCOUNT}/status", {"status": status}).accepted


def create_user(plane: ControlPlane, name: str, directory: Path, *, reads_archive: bool) -> KubectlUser:
    bind_role(plane, "jobtree-planner", name)
    if reads_archive:
        role = "--role=jobtree-archive-reader"
        plane.kubectl("create", "rolebinding", name, role, f"--user={name}", "-n", NAMESPACE)
    return KubectlUser(plane, name, "default", directory)


def carried_gpu_seconds(tenant: Tenant, team: str) -> object:
    path = f"/apis/rq.davidlangworthy.io/v1/budgets/{tenant.name}-{team}"
    return tenant.plane.rest.get(path).body["status"]["carried"]["envelopes"][0]["gpuSeconds"]["owned"]


def test_archived_leases_leave_the_cluster_and_stay_in_reports(
    plane: ControlPlane, fleet: FakeFleet, kubeconfig: Path, tmp_path: Path
) -> None:
    address = own_address()
    port = free_port(address)
    point_service_to(plane, address, port)
    tenant = Tenant(plane, fleet, "years")
    tenant.add_nodes("nv-a", 2)
    tenant.create_budget("a", 16, maxGPUHours=1000)
    archive = ArchiveDirectory(str(tmp_path / "archive"))
    flags = (f"--archive={archive.path}", "--archive-seconds=1", f"--health-address={address}:{port}")
    with Manager(plane, kubeconfig, *flags) as manager:
        tenant.create_run("old", "a", 8)
        tenant.create_run("on", "a", 8)
        tenant.await_running_pods("old", 1)
        tenant.finish("old")
        tenant.await_phase("Completed", "old")
        wait_until(lambda: tenant.leases("old") == [], "its lease is archived")
        (archived,) = read_archive(archive).bodies
        assert archived["spec"]["runRef"]["name"] == "old"
        assert tenant.status("old")["funding"][0]["gpuHours"] >= "0"
        carried = carried_gpu_seconds(tenant, "a")

        arguments = ("leases", "--owner", "years", "--since", "2026-01-01", "-o", "csv")
        finance = create_user(plane, "finance", tmp_path, reads_archive=True)
        wait_until(lambda: finance.kubectl_runs(*arguments).code == 0, "the API server knows the right")
        answer = finance.kubectl_runs(*arguments)
        assert (answer.code, answer.err) == (0, ""), answer.err
        rows = {row["run"]: row for row in csv.DictReader(io.StringIO(answer.out))}
        assert rows["years/old"]["gpu_seconds"] == carried
        assert rows["years/on"]["end"] == ""

        other_user = create_user(plane, "other-user", tmp_path, reads_archive=False)
        wait_until(
            lambda: "jobtree-archive-reader" in other_user.kubectl_runs(*arguments).err,
            "the missing right is named",
        )
        answer = other_user.kubectl_runs(*arguments)
        assert (answer.code, "years/old" in answer.out, "years/on" in answer.out) == (1, False, True)
        assert not manager.has_logged("an invariant is broken")
    with Manager(plane, kubeconfig) as second_manager:  # the carried usage does not need the archive
        tenant.create_run("new", "a", 4)
        tenant.await_running_pods("new", 1)
        wait_until(lambda: carried_gpu_seconds(tenant, "a") == carried, "the carried usage is unchanged")
        assert not second_manager.has_logged("an invariant is broken")


class Volume:
    """A volume for an archive that a test makes unusable."""

    error = ""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.archive = path

    def break_volume(self) -> None:
        raise NotImplementedError

    def repair(self) -> None:
        raise NotImplementedError


class NotMounted(Volume):
    """A volume that is not mounted: there is a file in place of a directory."""

    error = "Not a directory"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.archive = path / "file" / "archive"

    def break_volume(self) -> None:
        (self.path / "file").write_text("not a directory")

    def repair(self) -> None:
        (self.path / "file").unlink()


class Full(Volume):
    """A volume without free space."""

    error = "No space left on device"

    def break_volume(self) -> None:
        with suppress(OSError), (self.path / "ballast").open("wb", buffering=0) as ballast:
            while True:
                ballast.write(bytes(4096))

    def repair(self) -> None:
        (self.path / "ballast").unlink()


class ReadOnly(Volume):
    """A volume that is mounted read-only."""

    error = "Read-only file system"

    def break_volume(self) -> None:
        mount("-o", "remount,ro", str(self.path))

    def repair(self) -> None:
        mount("-o", "remount,rw", str(self.path))


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, timeout=60)


@pytest.fixture(params=[NotMounted, Full, ReadOnly])
def broken_volume(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Volume]:
    """A volume that cannot be written; where it is mounted, it has 64 KiB."""
    if request.param is not NotMounted and (why := why_no_real_nodes()):
        pytest.skip(why)
    mounted = request.param is not NotMounted
    if mounted:
        mount("-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path))
    volume = request.param(tmp_path)
    try:
        volume.break_volume()
        yield volume
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", tmp_path], check=True, timeout=60)


def test_leases_stay_and_manager_is_ready_when_the_archive_cannot_be_written(
    plane: ControlPlane, fleet: FakeFleet, kubeconfig: Path, broken_volume: Volume
) -> None:
    tenant = Tenant(plane, fleet, type(broken_volume).__name__.lower())
    tenant.add_nodes("nv-a", 1)
    tenant.create_budget("a", 8)
    port = free_port()
    flags = (
        f"--archive={broken_volume.archive}",
        "--archive-seconds=1",
        f"--health-address=127.0.0.1:{port}",
    )
    with Manager(plane, kubeconfig, *flags) as manager:
        tenant.create_run("old", "a", 8)
        tenant.await_running_pods("old", 1)
        tenant.finish("old")
        wait_until(lambda: manager.has_logged("closed leases cannot be archived"), "the manager logs it")
        assert manager.has_logged(broken_volume.error)
        assert tenant.closure_reasons("old") == ["Completed"]
        wait_until(lambda: "jobtree_archive_failing 1.0" in http_get(port, "/metrics")[1], "the metric is 1")
        wait_until(lambda: http_get(port, "/readyz") == (200, "ok\n"), "the manager is ready")
        broken_volume.repair()
        wait_until(lambda: tenant.leases("old") == [], "the lease is archived without another event")
        wait_until(
            lambda: "jobtree_archive_failing 0.0" in http_get(port, "/metrics")[1], "the metrics say so"
        )
        bodies = read_archive(ArchiveDirectory(str(broken_volume.archive))).bodies
        assert "old" in {body["spec"]["runRef"]["name"] for body in bodies}
