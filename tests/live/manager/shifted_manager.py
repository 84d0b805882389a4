"""A manager whose system clock is wrong by the seconds in a file, as if an administrator set it meanwhile."""

import os
import sys
import time
from pathlib import Path

SHIFT_FILE = "JOBTREE_TEST_SHIFT_FILE"


def shift_clocks() -> None:
    """Replaces the clocks that Jobtree reads. Those that measure elapsed time stay right."""
    path, time_ns, seconds = Path(os.environ[SHIFT_FILE]), time.time_ns, time.time

    def shift() -> int:
        return int(path.read_text())

    time.time_ns = lambda: time_ns() + shift() * 10**9
    time.time = lambda: seconds() + shift()


if __name__ == "__main__":
    shift_clocks()
    from jobtree.manager.__main__ import main

    sys.exit(main())
