"""A Kubernetes control plane for tests: a real etcd and a real kube-apiserver in a temporary directory.

Entering a ``ControlPlane`` starts them and waits until ``/readyz`` answers ok; leaving it stops them and
removes the directory. etcd listens on a socket in that directory, which only this user can open. The API
server listens on a free loopback port with a certificate of the cluster's own authority. RBAC is on,
admission is Kubernetes' default, and no controllers run. Tests start more programs as they need them::

    with ControlPlane() as plane:
        plane.start_controllers()
        plane.start_scheduler()
        fleet = plane.start_fake_fleet()
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.live.cluster import directory_cleanup
from tests.live.cluster.api_server_flags import ADMIN_GROUP, api_server_flags
from tests.live.cluster.certificates import Authority, kubeconfig, private_file
from tests.live.cluster.free_ports import free_port
from tests.live.cluster.rest_client import RestClient
from tests.live.cluster.server_process import Server, ServerExitedError, wait_until
from tests.live.nodes.fake_fleet import FakeFleet
from tests.live.nodes.real_nodes import RealNodes
from tests.live.programs.program_finder import find_program

ADMIN = "admin"
START_SECONDS = 90
PROBE_SECONDS = 3
STOP_SECONDS = 20
MEMORY_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
GO_ENVIRONMENT = {"GOGC": "400", "GOMEMLIMIT": str(MEMORY_BYTES // 3)}  # more memory, less garbage collection
KUBECTL_SECONDS = 180
PORT_ATTEMPTS = 3


class ControlPlane:
    """A running control plane. ``api_server_flags`` are added to the default flags or replace them."""

    def __init__(self, api_server_flags: Mapping[str, str] | None = None) -> None:
        self._extra_flags = dict(api_server_flags or {})
        self._stack = ExitStack()
        self.servers: list[Server] = []
        self.authority = Authority()
        self.url = ""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.directory = Path(
                stack.enter_context(
                    tempfile.TemporaryDirectory(prefix="jobtree-", ignore_cleanup_errors=True)
                )
            )
            self._stack = stack
            cleanup = [sys.executable, directory_cleanup.__file__, str(self.directory)]
            self.launch("directory-cleanup", cleanup, cleans_up=True)
            self._start_etcd()
            self._start_api_server()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    # --- for tests

    @cached_property
    def admin_kubeconfig(self) -> Path:
        """The kubeconfig of a user with all rights."""
        return self.kubeconfig(ADMIN, ADMIN_GROUP)

    @cached_property
    def rest(self) -> RestClient:
        """Sends requests as a user with all rights."""
        return self.rest_as(ADMIN, ADMIN_GROUP)

    @cached_property
    def kubectl_program(self) -> Path:
        return find_program("kubectl")

    def rest_as(self, user: str, *groups: str) -> RestClient:
        """Returns a client that sends requests as ``user``, a member of ``groups``."""
        return RestClient(self.url, self.authority, self.authority.client(user, groups), self.directory)

    def kubeconfig(self, user: str, *groups: str) -> Path:
        """Writes a kubeconfig for ``user``, a member of ``groups``; RBAC decides what they may do."""
        identity = self.authority.client(user, groups)
        name = re.sub(r"[:/]", "-", "+".join((user, *groups)))  # colons separate the paths in KUBECONFIG
        text = kubeconfig(self.url, self.authority, user, identity)
        return private_file(self.directory / f"{name}.kubeconfig", text)

    def kubectl(
        self,
        *arguments: str,
        stdin: str | None = None,
        check: bool = True,
        kubeconfig: Path | None = None,
        within_seconds: float = KUBECTL_SECONDS,
    ) -> subprocess.CompletedProcess[str]:
        """Runs kubectl, by default as the administrator. With ``check``, a failure raises."""
        result = subprocess.run(
            [self.kubectl_program, *arguments],
            env=self.environment(kubeconfig),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=within_seconds,
            check=False,
        )
        if check and result.returncode != 0:
            raise AssertionError(
                f"kubectl {' '.join(arguments)}: {result.returncode}\n{result.stderr}{result.stdout}"
            )
        return result

    def environment(self, kubeconfig: Path | None = None) -> dict[str, str]:
        """The environment for kubectl and other programs that read a kubeconfig."""
        return os.environ | {
            "KUBECONFIG": str(kubeconfig or self.admin_kubeconfig),
            "KUBECACHEDIR": str(self.directory / "kubectl-cache"),
            "KUBERC": "off",
        }

    def logs(self) -> str:
        """Returns the last lines of every log, for the report of a failed test."""
        return "\n".join(server.tail() for server in self.servers)

    # --- more programs

    def start(self, name: str, *flags: str) -> Server:
        """Starts another program of the control plane. Programs are stopped in the reverse order."""
        return self.launch(name, [find_program(name), *flags], os.environ | GO_ENVIRONMENT)

    def launch(
        self,
        name: str,
        command: Sequence[str | Path],
        environment: Mapping[str, str] | None = None,
        *,
        cleans_up: bool = False,
    ) -> Server:
        """Starts a command; its log goes to NAME.log."""
        server = Server(command, self.directory / f"{name}.log", environment, cleans_up=cleans_up)
        self.servers.append(server)
        self._stack.callback(server.stop, STOP_SECONDS)
        return server

    def start_controllers(self, **flags: str) -> Server:
        """Starts kube-controller-manager; ``flags`` are added to its flags (``node_monitor_period="1s"``).

        By default it ignores missing heartbeats, because fake nodes send none. With real nodes, pass
        ``controllers="*"``.
        """
        return self._start_component(
            "kube-controller-manager",
            {
                "controllers": "*,-node-lifecycle-controller",
                "use-service-account-credentials": "true",
                "service-account-private-key-file": str(self.directory / "tokens.key"),
                "root-ca-file": str(self.directory / "ca.crt"),
                **{flag.replace("_", "-"): value for flag, value in flags.items()},
            },
        )

    def start_scheduler(self, **flags: str) -> Server:
        """Starts kube-scheduler; ``flags`` are added to its flags."""
        return self._start_component(
            "kube-scheduler", {flag.replace("_", "-"): value for flag, value in flags.items()}
        )

    def start_fake_fleet(self, node_lease_seconds: int = 0) -> FakeFleet:
        """Starts kwok, with no nodes yet.

        If the node-lifecycle-controller runs, the nodes need node leases to stay ready.
        """
        return FakeFleet(self, node_lease_seconds)

    def start_real_nodes(
        self,
        count: int = 2,
        *,
        gpus: int = 8,
        labels: Mapping[str, str] | None = None,
        images: Sequence[Path] = (),
    ) -> RealNodes:
        """Starts kubelets, with a network and DNS, and waits until they are ready. Needs root."""
        return RealNodes(self, count, gpus, labels or {}, images)

    # --- parts

    def _start_component(self, name: str, flags: Mapping[str, str]) -> Server:
        """Starts a client of the API server, without a port and without leader election."""
        kubeconfig = self.kubeconfig(f"system:{name}")
        common = {"kubeconfig": str(kubeconfig), "leader-elect": "false", "secure-port": "0"}
        return self.start(name, *(f"--{flag}={value}" for flag, value in (common | dict(flags)).items()))

    def _start_etcd(self) -> None:
        # etcd has no other members, and its data need not outlive the test, so it does not wait for the disk.
        self._etcd_socket = self.directory / "etcd.sock"
        self.start(
            "etcd",
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls=unix://{self._etcd_socket}",
            "--advertise-client-urls=http://127.0.0.1:0",
            "--listen-peer-urls=http://127.0.0.1:0",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )

    def _start_api_server(self) -> None:
        """Starts the API server; tries another port if something has taken the first one."""
        for attempt in range(1, PORT_ATTEMPTS + 1):
            port = free_port()
            self.url = f"https://127.0.0.1:{port}"
            flags = (
                api_server_flags(self.directory, self.authority, self._etcd_socket, port) | self._extra_flags
            )
            server = self.start("kube-apiserver", *(f"--{flag}={value}" for flag, value in flags.items()))
            try:
                self._await_ready()
            except ServerExitedError:
                if "address already in use" not in server.tail() or attempt == PORT_ATTEMPTS:
                    raise
                self.servers.remove(server)
            except TimeoutError as late:
                raise TimeoutError(f"{late}\n{self.logs()}") from None
            else:
                return

    def _await_ready(self) -> None:
        # Another process may have taken the port and never answer, so the wait is short.
        identity = self.authority.client(ADMIN, [ADMIN_GROUP])
        probe = RestClient(self.url, self.authority, identity, self.directory, PROBE_SECONDS)

        def ready() -> bool:
            for server in self.servers:
                server.check()
            try:
                return probe.get("/readyz").accepted
            except (OSError, HTTPException):
                return False

        wait_until(ready, "the API server is ready", START_SECONDS)
