"""Installs Debian packages: those that real nodes and images need, and Prometheus.

Only root can run real nodes, so root installs missing packages with apt-get. Without apt-get, the error names
the packages to install by hand. Tests run an installed Prometheus as any user.
"""

import os
import shutil
from pathlib import Path

from tests.live.programs.long_command import CommandFailedError, run_command

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
"""Each command that is needed, and the package that contains it."""
_CNI_PACKAGE = "containernetworking-plugins"
_PROMETHEUS = "prometheus"


def why_no_real_nodes() -> str | None:
    """Returns why real nodes cannot run here, or None if they can."""
    if os.geteuid() != 0:
        return "real nodes need root (mounts, network and containers of their own): run this as root"
    return None


def why_no_prometheus() -> str | None:
    """Returns why Prometheus is missing and cannot be installed, or None."""
    if os.geteuid() != 0 and not _prometheus_installed():
        return f"there is no prometheus and promtool, and only root can install them (Debian's {_PROMETHEUS})"
    return None


def install_prometheus() -> None:
    """Installs Prometheus if it is missing. Raises CommandFailedError."""
    if not _prometheus_installed():
        _install([_PROMETHEUS], "The tests of metrics need")


def _prometheus_installed() -> bool:
    return all(shutil.which(program) for program in ("prometheus", "promtool"))


def install_packages() -> None:
    """Installs missing packages of real nodes and images. Raises CommandFailedError."""
    missing = {package for command, package in COMMANDS.items() if shutil.which(command) is None}
    if not _cni_installed():
        missing.add(_CNI_PACKAGE)
    if missing:
        hint = f"; put the network plugins into {CNI_DIRECTORIES[1]}"
        _install(sorted(missing), "Real nodes need", hint)


def cni_directory() -> Path:
    """Returns the directory of the network plugins."""
    return next(directory for directory in CNI_DIRECTORIES if (directory / "bridge").exists())


def _cni_installed() -> bool:
    return any((directory / "bridge").exists() for directory in CNI_DIRECTORIES)


def _install(packages: list[str], user: str, hint: str = "") -> None:
    if shutil.which("apt-get") is None:
        raise CommandFailedError(
            f"{user} {', '.join(packages)} (names of Debian packages), and there is no "
            f"apt-get here: install them by hand{hint}."
        )
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        run_command(
            ["apt-get", "-q", *arguments],
            f"apt-get {' '.join(arguments)}",
            within_seconds=INSTALL_SECONDS,
            environment=environment,
        )
