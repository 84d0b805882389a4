"""Server processes that the tests start, and waiting for what they should do."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

END_WITH_PARENT = Path(__file__).with_name("end_with_parent.py")
POLL_SECONDS = 0.05
WAIT_SECONDS = 120
"""The longest wait for anything: much longer than it takes, because the machine may be busy."""


class ServerExitedError(RuntimeError):
    """A server has ended that should run. The message ends with the last lines of its log."""


class Server:
    """A running program, which ends when the tests do. Signals go to this process alone.

    If the tests are killed, the kernel kills the program too. A program that ``cleans_up`` gets SIGTERM
    instead. (An API server takes more than a minute to end after SIGTERM if its etcd has ended.)
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        log: Path,
        environment: Mapping[str, str] | None = None,
        *,
        cleans_up: bool = False,
    ) -> None:
        death_signal = signal.SIGTERM if cleans_up else signal.SIGKILL
        self.name = Path(command[0]).name
        self.log = log
        self._command = [sys.executable, END_WITH_PARENT, str(os.getpid()), str(int(death_signal)), *command]
        self._environment = environment
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as output:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,  # Ctrl-C goes to the tests, which then stop the server
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def check(self) -> None:
        """Raises ServerExitedError if the program has ended."""
        if self.has_ended:
            raise ServerExitedError(f"{self.name} ended with {self._process.returncode}.\n{self.tail()}")

    def tail(self, lines: int = 40) -> str:
        """The last lines of the log, under a title."""
        text = self.log.read_text(errors="replace").splitlines()
        return "\n".join([f"--- last lines of {self.log.name}", *text[-lines:]])

    def restart(self, meanwhile: Callable[[], None]) -> None:
        """Kills the program, calls ``meanwhile`` and starts it again.

        Its place in the order in which servers are stopped stays the same.
        """
        self._process.kill()
        self._process.wait()
        meanwhile()
        self._process = self._start()

    def stop(self, within_seconds: float = 20) -> None:
        """Sends SIGTERM, and SIGKILL if the program does not end in time."""
        self._process.terminate()
        try:
            self._process.wait(within_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def wait_until(condition: Callable[[], bool], description: str, within_seconds: float = WAIT_SECONDS) -> None:
    """Polls ``condition`` until it holds. Raises TimeoutError with the ``description`` if it does not."""
    deadline = time.monotonic() + within_seconds
    while not condition():
        if time.monotonic() >= deadline:
            raise TimeoutError(f"after {within_seconds:g} s, still not: {description}")
        time.sleep(POLL_SECONDS)
