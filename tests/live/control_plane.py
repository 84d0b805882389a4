"""A Kubernetes control plane for tests: a real etcd and a real kube-apiserver in a temporary directory.

Entering a ``ControlPlane`` starts them and waits until ``/readyz`` says ok; leaving it stops them and
removes the directory. etcd listens on a socket inside that directory, which only this user can open; the
API server listens on a free loopback port with a certificate of the cluster's own authority. RBAC is on,
admission is Kubernetes' default, and there are no controllers: nothing happens in this cluster that a test
did not ask for. More programs join when asked to::

    with ControlPlane() as plane:
        plane.start_controllers()
        plane.start_scheduler()
        fleet = plane.kwok()
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

from tests.live import sweeper
from tests.live.api_server import ADMIN_GROUP, api_server_flags
from tests.live.binaries import find
from tests.live.certificates import Authority, kubeconfig, private_file
from tests.live.fleet import Fleet
from tests.live.ports import free_port
from tests.live.process import Server, ServerExitedError, wait_until
from tests.live.real_nodes import RealNodes
from tests.live.rest import Rest

ADMIN = "admin"
START_SECONDS = 90
PROBE_SECONDS = 3
STOP_SECONDS = 20
MEMORY_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
GARBAGE = {"GOGC": "400", "GOMEMLIMIT": str(MEMORY_BYTES // 3)}  # of Go programs: time is short, not memory
KUBECTL_SECONDS = 180
PORT_ATTEMPTS = 3


class ControlPlane:
    """Context manager: a running control plane. ``api_server_flags`` add to its flags or replace them."""

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
            sweep = [sys.executable, sweeper.__file__, str(self.directory)]
            self.launch("sweeper", sweep, cleans_up=True)
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
        """For a user who may do everything."""
        return self.kubeconfig(ADMIN, ADMIN_GROUP)

    @cached_property
    def rest(self) -> Rest:
        """Requests as a user who may do everything."""
        return self.rest_as(ADMIN, ADMIN_GROUP)

    @cached_property
    def kubectl_program(self) -> Path:
        return find("kubectl")

    def rest_as(self, user: str, *groups: str) -> Rest:
        """Requests as ``user``, a member of ``groups``."""
        return Rest(self.url, self.authority, self.authority.client(user, groups), self.directory)

    def kubeconfig(self, user: str, *groups: str) -> Path:
        """Mints a kubeconfig for ``user``, a member of ``groups``; what they may do is up to RBAC."""
        identity = self.authority.client(user, groups)
        name = re.sub(r"[:/]", "-", "+".join((user, *groups)))  # KUBECONFIG is a list, parted by colons
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
        """Runs kubectl, as the administrator unless told otherwise. With ``check``, failing is an error."""
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
        """The environment in which kubectl, and anything that reads a kubeconfig, finds this cluster."""
        return os.environ | {
            "KUBECONFIG": str(kubeconfig or self.admin_kubeconfig),
            "KUBECACHEDIR": str(self.directory / "kubectl-cache"),
            "KUBERC": "off",
        }

    def logs(self) -> str:
        """The last lines of every log, for the report of a test that failed."""
        return "\n".join(server.tail() for server in self.servers)

    # --- for programs that join

    def start(self, name: str, *flags: str) -> Server:
        """Starts another program of the control plane; it is stopped with the rest, before what it needs."""
        return self.launch(name, [find(name), *flags], os.environ | GARBAGE)

    def launch(
        self,
        name: str,
        command: Sequence[str | Path],
        environment: Mapping[str, str] | None = None,
        *,
        cleans_up: bool = False,
    ) -> Server:
        """Starts any command as ``start`` does; the log goes to NAME.log."""
        server = Server(command, self.directory / f"{name}.log", environment, cleans_up=cleans_up)
        self.servers.append(server)
        self._stack.callback(server.stop, STOP_SECONDS)
        return server

    def start_controllers(self, **flags: str) -> Server:
        """Starts kube-controller-manager; ``flags`` add to its flags (``node_monitor_period="1s"``).

        Nodes that send no heartbeats stay as they are: the fake ones have none. Where nodes are real,
        ``controllers="*"`` has it look after them.
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
        """Starts kube-scheduler; ``flags`` add to its flags."""
        return self._start_component(
            "kube-scheduler", {flag.replace("_", "-"): value for flag, value in flags.items()}
        )

    def kwok(self, node_lease_seconds: int = 0) -> Fleet:
        """Starts kwok: a fleet of fake nodes, empty as yet.

        Only with node leases do the nodes stay ready where the node-lifecycle-controller runs.
        """
        return Fleet(self, node_lease_seconds)

    def real_nodes(
        self,
        count: int = 2,
        *,
        gpus: int = 8,
        labels: Mapping[str, str] | None = None,
        images: Sequence[Path] = (),
    ) -> RealNodes:
        """Starts real kubelets, with their network and DNS, and waits until they are ready. Needs root."""
        return RealNodes(self, count, gpus, labels or {}, images)

    # --- parts

    def _start_component(self, name: str, flags: Mapping[str, str]) -> Server:
        """A client of the API server that nobody needs to reach: it opens no port and has no rival."""
        kubeconfig = self.kubeconfig(f"system:{name}")
        common = {"kubeconfig": str(kubeconfig), "leader-elect": "false", "secure-port": "0"}
        return self.start(name, *(f"--{flag}={value}" for flag, value in (common | dict(flags)).items()))

    def _start_etcd(self) -> None:
        # No other member is ever told an address, and the data is not worth waiting for the disk.
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
        """A port that was free a moment ago may be taken by now: then another one is tried."""
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
        # Whoever took the port from us may never answer: this must not wait for them.
        identity = self.authority.client(ADMIN, [ADMIN_GROUP])
        probe = Rest(self.url, self.authority, identity, self.directory, PROBE_SECONDS)

        def ready() -> bool:
            for server in self.servers:
                server.check()
            try:
                return probe.get("/readyz").accepted
            except (OSError, HTTPException):
                return False

        wait_until(ready, "the API server says that it is ready", START_SECONDS)
