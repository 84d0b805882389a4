"""Runs a command that ends when its parent does: ``python end_with_parent.py PARENT SIGNAL COMMAND…``.

A test run that is killed cannot stop its servers. This program asks the kernel to send the command that
signal when process PARENT ends, and then becomes the command. Elsewhere than on Linux it only becomes the
command.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, death_signal: int, command: list[str]) -> None:
    """Asks for the signal, then replaces this process by the command."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the process that started this one has ended")
    os.execv(command[0], command)  # noqa: S606 - becoming the command is the purpose


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
