"""Runs long commands of the set-up and reports on stderr every few seconds that they still run."""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

PROGRESS_SECONDS = 15
_LAST_LINES = 40


class CommandFailedError(RuntimeError):
    """A command of the set-up failed or took too long. The message ends with its last output."""


def report_progress(text: str) -> None:
    sys.stderr.write(f"[control plane] {text}\n")
    sys.stderr.flush()


def run_command(
    command: Sequence[str | Path],
    activity: str,
    *,
    within_seconds: float,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Runs ``command``, reports its ``activity``, and returns its stdout. Raises CommandFailedError."""
    if shutil.which(command[0]) is None:
        raise CommandFailedError(f"{activity} failed: there is no `{command[0]}` here")
    started = time.monotonic()
    report_progress(f"{activity} …")
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        output = _output(process, activity, started, within_seconds)
        if process.returncode != 0:
            errors.seek(0)
            last_output = "".join([*errors.readlines()[-_LAST_LINES:], output[-4000:]])
            raise CommandFailedError(
                f"{activity} failed: `{' '.join(map(str, command))}` printed:\n{last_output}"
            )
    report_progress(f"{activity}: done in {time.monotonic() - started:.0f} s")
    return output


def _output(process: subprocess.Popen[str], activity: str, started: float, within_seconds: float) -> str:
    while True:
        try:
            return process.communicate(timeout=PROGRESS_SECONDS)[0]
        except subprocess.TimeoutExpired:
            if time.monotonic() - started > within_seconds:
                process.kill()
                raise CommandFailedError(f"{activity} was stopped after {within_seconds:g} s") from None
            report_progress(f"{activity} … {time.monotonic() - started:.0f} s")
