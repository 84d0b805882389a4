"""Clients of the webhook: the API server with a certificate, and others that send large bodies slowly."""

import contextlib
import json
import selectors
import socket
import ssl
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.live.cluster.certificates import Authority, kubeconfig, private_file
from tests.live.manager.manager_process import Manager

NAME = "api-server-of-the-tests"
BODY_BYTES = 8 * 2**20 - 1
CHUNK = b" " * 2**16


class WebhookClient:
    """The certificate with which an API server calls webhooks that ask for one."""

    def __init__(self, directory: Path) -> None:
        authority = Authority()
        self._authority = private_file(directory / "ca.crt", authority.certificate)
        config = json.loads(kubeconfig("https://unused", authority, "*", authority.client(NAME)))
        config["users"] = [{"name": "*", "user": config["users"][0]["user"]}]
        credentials = private_file(directory / "webhooks.kubeconfig", json.dumps(config))
        plugin = {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "WebhookAdmissionConfiguration",
            "kubeConfigFile": str(credentials),
        }
        names = ("ValidatingAdmissionWebhook", "MutatingAdmissionWebhook")
        admission = {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AdmissionConfiguration",
            "plugins": [{"name": name, "configuration": plugin} for name in names],
        }
        self._admission = private_file(directory / "admission.json", json.dumps(admission))

    @property
    def api_server_flags(self) -> dict[str, str]:
        return {"admission-control-config-file": str(self._admission)}

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags of a manager that answers this client only."""
        return (f"--webhook-client-ca={self._authority}", f"--webhook-client-names={NAME}")


class SlowClients:
    """Clients without credentials. Each sends as much of a large body as is read, but never the last byte."""

    def __init__(self, address: str, count: int) -> None:
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self._tls = ssl.create_default_context()
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._send, daemon=True) for _ in range(count)]
        self._lock = threading.Lock()
        self.closed = 0
        self.sent_bytes = 0

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _send(self) -> None:
        with contextlib.suppress(OSError):
            self._send_body()
        with self._lock:
            self.closed += 1

    def _send_body(self) -> None:
        head = f"POST /validate HTTP/1.1\r\nHost: w\r\nContent-Length: {BODY_BYTES + 1}\r\n\r\n"
        with (
            socket.create_connection(self._address, timeout=30) as plain,
            self._tls.wrap_socket(plain) as connection,
            selectors.DefaultSelector() as selector,
        ):
            connection.sendall(head.encode())
            connection.setblocking(False)
            selector.register(connection, selectors.EVENT_READ)
            left = BODY_BYTES
            while not self._ending.is_set():
                left -= self._send_some(connection, left)
                if selector.select(timeout=0.05) and self._is_closed(connection):
                    return

    def _send_some(self, connection: ssl.SSLSocket, left: int) -> int:
        with contextlib.suppress(ssl.SSLWantWriteError, ssl.SSLWantReadError):
            sent = connection.send(CHUNK[:left]) if left else 0
            with self._lock:
                self.sent_bytes += sent
            return sent
        return 0

    @staticmethod
    def _is_closed(connection: ssl.SSLSocket) -> bool:
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return connection.recv(4096) == b""
        return False


def resident_bytes(manager: Manager) -> int:
    """Returns the memory that a manager occupies now."""
    status = Path(f"/proc/{manager.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024
