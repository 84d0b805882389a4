"""A machine of its own for a real kubelet, as far as Linux gives one: ``python machine.py SETTINGS.json``.

The kubelet, its containerd, the device plugin and every container run in a process namespace and a mount
namespace of their own. When the namespace's first process is killed, the kernel kills all the others, and
their mounts, shims and network namespaces go with them: that is how this machine loses power, and why
nothing of it is ever left behind. ``/var/lib`` and ``/var/log`` are directories of the machine's own that
last; ``/run`` is empty after every start, as on any machine.

This process is outside. Told to end, it kills the machine, waits until all of it is gone, and removes the
cgroups of its containers. It imports nothing of the tests: it runs as a program.
"""

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

CLONE_NEWNS = 0x00020000
CLONE_NEWPID = 0x20000000
PR_SET_PDEATHSIG = 1
RUNTIME_SOCKET = "/run/containerd/containerd.sock"
RUNTIME_SECONDS = 60
CGROUPS = Path("/sys/fs/cgroup")
CONTAINERS = "k8s.io"
TASKS = f"containerd/io.containerd.runtime.v2.task/{CONTAINERS}"
"""Where, below /var/lib, containerd has a directory for each container that runs."""

Settings = dict[str, Any]


def main(settings: Settings) -> int:
    """Boots the machine and stays until it is down."""
    directory = Path(settings["directory"])
    libc = ctypes.CDLL(None, use_errno=True)
    _unshare(libc, CLONE_NEWPID)  # this is for the processes to come, not for this one
    first = os.fork()
    if first == 0:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        _unshare(libc, CLONE_NEWNS)
        boot(settings, directory)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(first, signal.SIGKILL))
    _, status = os.waitpid(first, 0)
    remove_cgroups(directory)
    return os.waitstatus_to_exitcode(status)


def _unshare(libc: ctypes.CDLL, what: int) -> None:
    if libc.unshare(what) != 0:
        raise OSError(ctypes.get_errno(), "no namespace of our own is to be had")


def boot(settings: Settings, directory: Path) -> NoReturn:
    """The first process: starts the others, then buries the dead until one that matters has ended."""
    _mount("--make-rprivate", "/")
    _mount("-t", "proc", "proc", "/proc")
    _mount("-t", "tmpfs", "tmpfs", "/run")
    for own, place in (("lib", "/var/lib"), ("log", "/var/log")):
        (directory / own).mkdir(parents=True, exist_ok=True)
        _mount("--bind", str(directory / own), place)
    essential = {_start(settings["containerd"])}
    _await_socket()
    for image in settings["images"]:
        _start(["ctr", "-n", "k8s.io", "images", "import", image], wait=True)
    Path("/var/lib/kubelet/device-plugins").mkdir(parents=True, exist_ok=True)
    essential |= {_start(settings[name]) for name in ("kubelet", "device_plugin") if settings[name]}
    while True:
        ended, status = os.wait()
        if ended in essential:
            os._exit(os.waitstatus_to_exitcode(status) or 1)


def _start(command: list[str], *, wait: bool = False) -> int:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    if wait and process.wait() != 0:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    return process.pid


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def _await_socket() -> None:
    deadline = time.monotonic() + RUNTIME_SECONDS
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as probe:
        while probe.connect_ex(RUNTIME_SOCKET) != 0:
            if time.monotonic() > deadline:
                sys.exit(f"containerd does not answer after {RUNTIME_SECONDS} s")
            time.sleep(0.05)


def remove_cgroups(directory: Path) -> None:
    """Removes the cgroups of the containers that ran when the machine went down: runc had no time to."""
    containers = [path.name for path in (directory / "lib" / TASKS).glob("*")]
    for parent in (CGROUPS / CONTAINERS, *CGROUPS.glob(f"*/{CONTAINERS}")):
        for cgroup in (*(parent / name for name in containers), parent):
            with contextlib.suppress(OSError):  # not in this hierarchy, or used by another machine
                cgroup.rmdir()


if __name__ == "__main__":
    sys.exit(main(json.loads(Path(sys.argv[1]).read_text())))
