"""Removes a directory when the tests that started it were killed: ``python sweeper.py DIRECTORY``.

Tests that end in good order remove their directory themselves; told to end by them, this does nothing.
"""

import os
import shutil
import signal
import sys
import time
from pathlib import Path

PATIENCE_SECONDS = 60


def main(directory: Path) -> None:
    """Waits to be told to end, then looks whether whoever started it is still there."""
    parent = os.getppid()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    signal.sigwait({signal.SIGTERM})
    deadline = time.monotonic() + PATIENCE_SECONDS
    while os.getppid() != parent and directory.exists() and time.monotonic() < deadline:
        shutil.rmtree(directory, ignore_errors=True)  # again, while servers that are ending write to it
        time.sleep(0.2)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
