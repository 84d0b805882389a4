"""Runs a command that does not outlive whoever started it: ``python leash.py PARENT SIGNAL COMMAND…``.

A test run that is killed cannot stop its servers. This asks the kernel to send the command that signal when
its parent is gone, then becomes the command. Linux only; elsewhere it just becomes the command.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, death_signal: int, command: list[str]) -> None:
    """Puts this process on the leash of its parent, process ``parent``, and runs ``command``."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the process that started this one is gone")
    os.execv(command[0], command)  # noqa: S606 - becoming the command is the purpose


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
