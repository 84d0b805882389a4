"""System programs from Debian's packages: Prometheus, and what real nodes and images are made with.

Only root can run real nodes, so only root gets this far: what is missing is then installed with apt-get.
Where there is no apt-get, the error says what to install by hand. A Prometheus that is there serves anybody.
"""

import os
import shutil
from pathlib import Path

from tests.live.progress import CommandFailedError, run

INSTALL_SECONDS = 600
CNI_DIRECTORIES = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
COMMANDS = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "mount": "mount",
    "buildah": "buildah",
    "debootstrap": "debootstrap",
}
"""Each command, and the package it is in."""
_CNI_PACKAGE = "containernetworking-plugins"
_PROMETHEUS = "prometheus"


def why_no_real_nodes() -> str | None:
    """Why real nodes cannot run here, if they cannot."""
    if os.geteuid() != 0:
        return "real nodes need root (mounts, network and containers of their own): run this as root"
    return None


def why_no_prometheus() -> str | None:
    """Why there is no Prometheus here, and none can be had."""
    if os.geteuid() != 0 and not _prometheus_installed():
        return f"there is no prometheus and promtool, and only root can install them (Debian's {_PROMETHEUS})"
    return None


def install_prometheus() -> None:
    """Installs it if it is missing. Raises CommandFailedError if that cannot be done."""
    if not _prometheus_installed():
        _install([_PROMETHEUS], "The tests of metrics need")


def _prometheus_installed() -> bool:
    return all(shutil.which(program) for program in ("prometheus", "promtool"))


def install_packages() -> None:
    """Installs what is missing for real nodes. Raises CommandFailedError if that cannot be done."""
    missing = {package for command, package in COMMANDS.items() if shutil.which(command) is None}
    if not _cni_installed():
        missing.add(_CNI_PACKAGE)
    if missing:
        hint = f"; the network plugins belong in {CNI_DIRECTORIES[1]}"
        _install(sorted(missing), "Real nodes need", hint)


def cni_directory() -> Path:
    """Where the network plugins are."""
    return next(directory for directory in CNI_DIRECTORIES if (directory / "bridge").exists())


def _cni_installed() -> bool:
    return any((directory / "bridge").exists() for directory in CNI_DIRECTORIES)


def _install(packages: list[str], who: str, hint: str = "") -> None:
    if shutil.which("apt-get") is None:
        raise CommandFailedError(
            f"{who} {', '.join(packages)} (so Debian calls them), and there is no apt-get "
            f"here: install them by hand{hint}."
        )
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        run(
            ["apt-get", "-q", *arguments],
            f"apt-get {' '.join(arguments)}",
            within_seconds=INSTALL_SECONDS,
            environment=environment,
        )
