"""Long commands of the set-up: every few seconds they tell on stderr that they still run."""

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
    """A command of the set-up failed or took too long; the message ends with what it said last."""


def say(text: str) -> None:
    sys.stderr.write(f"[control plane] {text}\n")
    sys.stderr.flush()


def run(
    command: Sequence[str | Path],
    doing: str,
    *,
    within_seconds: float,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Runs ``command``, saying what it is ``doing``; returns its stdout. Raises CommandFailedError."""
    if shutil.which(command[0]) is None:
        raise CommandFailedError(f"{doing} failed: there is no `{command[0]}` here")
    begun = time.monotonic()
    say(f"{doing} …")
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
        output = _output(process, doing, begun, within_seconds)
        if process.returncode != 0:
            errors.seek(0)
            last = "".join([*errors.readlines()[-_LAST_LINES:], output[-4000:]])
            raise CommandFailedError(f"{doing} failed: `{' '.join(map(str, command))}` said:\n{last}")
    say(f"{doing}: done in {time.monotonic() - begun:.0f} s")
    return output


def _output(process: subprocess.Popen[str], doing: str, begun: float, within_seconds: float) -> str:
    while True:
        try:
            return process.communicate(timeout=PROGRESS_SECONDS)[0]
        except subprocess.TimeoutExpired:
            if time.monotonic() - begun > within_seconds:
                process.kill()
                raise CommandFailedError(f"{doing} was given up after {within_seconds:g} s") from None
            say(f"{doing} … {time.monotonic() - begun:.0f} s")
