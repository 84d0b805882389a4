"""A simulated machine that runs a real kubelet: ``python kubelet_machine.py SETTINGS.json``.

The kubelet, its containerd, the device plugin and all containers run in a process namespace and a mount
namespace of their own. When the first process of the namespace is killed, the kernel kills all others and
removes their mounts, shims and network namespaces. This simulates a loss of power and leaves nothing behind.
``/var/lib`` and ``/var/log`` are directories of the machine that outlive it; ``/run`` is empty after every
start.

The process of this program is outside of the namespaces. On SIGTERM it kills the machine, waits until all its
processes have ended, and removes the cgroups of its containers. It runs as a program, so it imports no test
module.
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
"""The directory below /var/lib that has a directory for each running container."""

Settings = dict[str, Any]


def main(settings: Settings) -> int:
    """Starts the machine, waits until it has ended, and removes its cgroups."""
    directory = Path(settings["directory"])
    libc = ctypes.CDLL(None, use_errno=True)
    _unshare(libc, CLONE_NEWPID)  # takes effect for child processes, not for this one
    first_process = os.fork()
    if first_process == 0:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        _unshare(libc, CLONE_NEWNS)
        boot(settings, directory)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(first_process, signal.SIGKILL))
    _, status = os.waitpid(first_process, 0)
    remove_cgroups(directory)
    return os.waitstatus_to_exitcode(status)


def _unshare(libc: ctypes.CDLL, namespaces: int) -> None:
    if libc.unshare(namespaces) != 0:
        raise OSError(ctypes.get_errno(), "cannot create a namespace")


def boot(settings: Settings, directory: Path) -> NoReturn:
    """Runs as the first process: starts the others and reaps children until an essential one has ended."""
    _mount("--make-rprivate", "/")
    _mount("-t", "proc", "proc", "/proc")
    _mount("-t", "tmpfs", "tmpfs", "/run")
    for name, target in (("lib", "/var/lib"), ("log", "/var/log")):
        (directory / name).mkdir(parents=True, exist_ok=True)
        _mount("--bind", str(directory / name), target)
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
    """Removes the cgroups of containers that were running, because runc had no time to do it."""
    containers = [path.name for path in (directory / "lib" / TASKS).glob("*")]
    for parent in (CGROUPS / CONTAINERS, *CGROUPS.glob(f"*/{CONTAINERS}")):
        for cgroup in (*(parent / name for name in containers), parent):
            with contextlib.suppress(OSError):  # not in this hierarchy, or used by another machine
                cgroup.rmdir()


if __name__ == "__main__":
    sys.exit(main(json.loads(Path(sys.argv[1]).read_text())))
