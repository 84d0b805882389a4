"""Removes a directory after its tests were killed: ``python directory_cleanup.py DIRECTORY``.

Tests that end normally remove their directory themselves, and then end this program.
"""

import os
import shutil
import signal
import sys
import time
from pathlib import Path

CLEANUP_SECONDS = 60


def main(directory: Path) -> None:
    """Waits for SIGTERM; removes the directory if the parent process has ended."""
    parent = os.getppid()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    signal.sigwait({signal.SIGTERM})
    deadline = time.monotonic() + CLEANUP_SECONDS
    while os.getppid() != parent and directory.exists() and time.monotonic() < deadline:
        shutil.rmtree(directory, ignore_errors=True)  # repeated, because servers that are ending still write
        time.sleep(0.2)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
