"""The manager under test, as a process with the service account that it is installed with."""

import json
import os
import signal
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Self

from tests.live.cluster.control_plane import ControlPlane
from tests.live.manager.installation import NAMESPACE
from tests.shown import REPOSITORY


class Manager:
    """A running manager. Leaving the context ends it, if it has not ended before."""

    def __init__(
        self,
        plane: ControlPlane,
        kubeconfig: Path,
        *flags: str,
        name: str = "manager",
        module: str = "jobtree.manager",
    ) -> None:
        self.plane = plane
        self.log = plane.directory / f"{name}-{time.monotonic_ns()}.log"
        command = [
            sys.executable,
            "-m",
            module,
            f"--kubeconfig={kubeconfig}",
            f"--namespace={NAMESPACE}",
            "--health-address=",
            "--check-seconds=0",
            *flags,
        ]
        environment = {
            **os.environ,
            "PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}",
            "PYTHONFAULTHANDLER": "1",  # for abort
        }
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> int:
        """Ends the process as Kubernetes would; returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.process.returncode

    def abort(self) -> None:
        """Ends the process; the stack of each thread goes to its log."""
        self.process.send_signal(signal.SIGABRT)
        self.process.wait()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def log_lines(self) -> list[dict[str, Any]]:
        """The lines of the log as documents. Text that is no JSON becomes the message of one."""
        documents = []
        for line in self.log.read_text(errors="replace").splitlines():
            try:
                documents.append(json.loads(line))
            except json.JSONDecodeError:
                documents.append({"message": line})
        return documents

    def has_logged(self, text: str) -> bool:
        return text in self.log.read_text(errors="replace")


def http_get(port: int, path: str) -> tuple[int, str]:
    """Status and body of a manager's answer on this port; ``(0, "")`` if it does not answer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError:
        return 0, ""
    finally:
        connection.close()
