"""The ledger over years on a real API server: old leases leave it, and people with the right to read on."""

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
from tests.live.control_plane import ControlPlane
from tests.live.fleet import Fleet
from tests.live.managing import ACCOUNT, NAMESPACE, Manager, Scene, await_account, install, set_policy
from tests.live.manifests import Manifest
from tests.live.packages import why_no_real_nodes
from tests.live.person import Person, bind
from tests.live.ports import free_port
from tests.live.process import wait_until
from tests.live.test_manager_starts import ask

RETENTION = "leaseRetention: 1s\n"


def own_address() -> str:
    """An address of this machine that is not its loopback, which no Endpoints may have. Nothing is sent."""
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
    """The manager's, on a cluster whose leases are soon old."""
    made = install(plane)
    set_policy(plane, RETENTION)
    return made


@pytest.fixture(scope="module")
def fleet(plane: ControlPlane) -> Fleet:
    return plane.kwok()


def lead_the_service_to(plane: ControlPlane, address: str, port: int) -> None:
    """The manager's Service, as it is installed, but for a process of this machine.

    An API server proxies to pods alone, so there is one that says it has this machine's address.
    """
    await_account(plane, NAMESPACE)
    plane.kubectl("delete", "service", ACCOUNT, "-n", NAMESPACE)  # that one is for pods of the Deployment
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


def person(plane: ControlPlane, name: str, directory: Path, *, reads_archive: bool) -> Person:
    bind(plane, "jobtree-planner", name)
    if reads_archive:
        role = "--role=jobtree-archive-reader"
        plane.kubectl("create", "rolebinding", name, role, f"--user={name}", "-n", NAMESPACE)
    return Person(plane, name, "default", directory)


def hours(scene: Scene, team: str) -> object:
    path = f"/apis/rq.davidlangworthy.io/v1/budgets/{scene.name}-{team}"
    return scene.plane.rest.get(path).body["status"]["carried"]["envelopes"][0]["gpuSeconds"]["owned"]


def test_old_leases_leave_the_cluster_and_every_answer_still_has_them(
    plane: ControlPlane, fleet: Fleet, kubeconfig: Path, tmp_path: Path
) -> None:
    address = own_address()
    port = free_port(address)
    lead_the_service_to(plane, address, port)
    scene = Scene(plane, fleet, "years")
    scene.nodes("nv-a", 2)
    scene.budget("a", 16, maxGPUHours=1000)
    archive = ArchiveDirectory(str(tmp_path / "archive"))
    flags = (f"--archive={archive.path}", "--archive-seconds=1", f"--health-address={address}:{port}")
    with Manager(plane, kubeconfig, *flags) as manager:
        scene.run("over", "a", 8)
        scene.run("on", "a", 8)
        scene.await_running("over", 1)
        scene.finish("over")
        scene.await_phase("Completed", "over")
        wait_until(lambda: scene.leases("over") == [], "its lease is gone")
        (filed,) = read_archive(archive).bodies
        assert filed["spec"]["runRef"]["name"] == "over"
        assert scene.status("over")["funding"][0]["gpuHours"] >= "0"
        carried = hours(scene, "a")

        words = ("leases", "--owner", "years", "--since", "2026-01-01", "-o", "csv")
        finance = person(plane, "finance", tmp_path, reads_archive=True)
        wait_until(lambda: finance.runs(*words).code == 0, "the right is known to the API server")
        answer = finance.runs(*words)
        assert (answer.code, answer.err) == (0, ""), answer.err
        rows = {row["run"]: row for row in csv.DictReader(io.StringIO(answer.out))}
        assert rows["years/over"]["gpu_seconds"] == carried
        assert rows["years/on"]["end"] == ""

        curious = person(plane, "curious", tmp_path, reads_archive=False)
        wait_until(lambda: "jobtree-archive-reader" in curious.runs(*words).err, "what they may not is told")
        answer = curious.runs(*words)
        assert (answer.code, "years/over" in answer.out, "years/on" in answer.out) == (1, False, True)
        assert not manager.said("an invariant is broken")
    with Manager(plane, kubeconfig) as again:  # without the archive it knows the same
        scene.run("new", "a", 4)
        scene.await_running("new", 1)
        wait_until(lambda: hours(scene, "a") == carried, "what was carried still is")
        assert not again.said("an invariant is broken")


class Volume:
    """A place for an archive, and what is wrong with it."""

    says = ""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.archive = path

    def spoil(self) -> None:
        raise NotImplementedError

    def mend(self) -> None:
        raise NotImplementedError


class InTheWay(Volume):
    """There is a file where a directory should be: the volume was not mounted."""

    says = "Not a directory"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.archive = path / "file" / "archive"

    def spoil(self) -> None:
        (self.path / "file").write_text("not a directory")

    def mend(self) -> None:
        (self.path / "file").unlink()


class Full(Volume):
    says = "No space left on device"

    def spoil(self) -> None:
        with suppress(OSError), (self.path / "ballast").open("wb", buffering=0) as ballast:
            while True:
                ballast.write(bytes(4096))

    def mend(self) -> None:
        (self.path / "ballast").unlink()


class ReadOnly(Volume):
    says = "Read-only file system"

    def spoil(self) -> None:
        mount("-o", "remount,ro", str(self.path))

    def mend(self) -> None:
        mount("-o", "remount,rw", str(self.path))


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, timeout=60)


@pytest.fixture(params=[InTheWay, Full, ReadOnly])
def spoilt(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Volume]:
    """A volume of 64 KiB that cannot be written."""
    if request.param is not InTheWay and (why := why_no_real_nodes()):
        pytest.skip(why)
    mounted = request.param is not InTheWay
    if mounted:
        mount("-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path))
    volume = request.param(tmp_path)
    try:
        volume.spoil()
        yield volume
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", tmp_path], check=True, timeout=60)


def test_an_archive_that_cannot_be_written_keeps_leases_and_readiness(
    plane: ControlPlane, fleet: Fleet, kubeconfig: Path, spoilt: Volume
) -> None:
    scene = Scene(plane, fleet, type(spoilt).__name__.lower())
    scene.nodes("nv-a", 1)
    scene.budget("a", 8)
    port = free_port()
    flags = (
        f"--archive={spoilt.archive}",
        "--archive-seconds=1",
        f"--health-address=127.0.0.1:{port}",
    )
    with Manager(plane, kubeconfig, *flags) as manager:
        scene.run("over", "a", 8)
        scene.await_running("over", 1)
        scene.finish("over")
        wait_until(lambda: manager.said("closed leases cannot be archived"), "it says so")
        assert manager.said(spoilt.says)
        assert scene.endings("over") == ["Completed"]
        wait_until(lambda: "jobtree_archive_failing 1.0" in ask(port, "/metrics")[1], "the metrics say so")
        wait_until(lambda: ask(port, "/readyz") == (200, "ok\n"), "it is ready all the same")
        spoilt.mend()
        wait_until(lambda: scene.leases("over") == [], "it goes on once it can, though nothing else happens")
        wait_until(lambda: "jobtree_archive_failing 0.0" in ask(port, "/metrics")[1], "the metrics say so")
        bodies = read_archive(ArchiveDirectory(str(spoilt.archive))).bodies
        assert "over" in {body["spec"]["runRef"]["name"] for body in bodies}
