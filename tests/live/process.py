"""A server process of the tests' own: its log, its end, and waiting for what it should do."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

LEASH = Path(__file__).with_name("leash.py")
POLL_SECONDS = 0.05
PATIENCE_SECONDS = 120
"""How long anything is waited for: much longer than it takes, for a busy machine is not a broken one."""


class ServerExitedError(RuntimeError):
    """A server that should be running is not. Its message ends with the last lines of the log."""


class Server:
    """A running program. Only this very process is ever signalled; it ends when the tests do.

    If the tests are killed, so is the program, unless it ``cleans_up``: then it is asked to end. (An API
    server that is asked to end after its etcd has gone takes more than a minute over it.)
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
        self._command = [sys.executable, LEASH, str(os.getpid()), str(int(death_signal)), *command]
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
                start_new_session=True,  # an interrupt at the terminal is for the tests, which then stop us
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
        """Ends the program without warning and starts it again; in between, it is not there.

        It stays in its place among others: those that need it are stopped before it.
        """
        self._process.kill()
        self._process.wait()
        meanwhile()
        self._process = self._start()

    def stop(self, within_seconds: float = 20) -> None:
        """Asks the program to end, and makes it if it does not."""
        self._process.terminate()
        try:
            self._process.wait(within_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def wait_until(condition: Callable[[], bool], what: str, within_seconds: float = PATIENCE_SECONDS) -> None:
    """Polls ``condition`` until it holds. Raises TimeoutError, which says ``what`` did not happen."""
    deadline = time.monotonic() + within_seconds
    while not condition():
        if time.monotonic() >= deadline:
            raise TimeoutError(f"after {within_seconds:g} s, still not: {what}")
        time.sleep(POLL_SECONDS)
