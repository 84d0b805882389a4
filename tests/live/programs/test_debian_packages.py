"""The packages that real nodes need, and the messages where real nodes cannot run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.programs import debian_packages
from tests.live.programs.debian_packages import (
    install_packages,
    install_prometheus,
    why_no_prometheus,
    why_no_real_nodes,
)
from tests.live.programs.long_command import CommandFailedError
from tests.shown import REPOSITORY


@pytest.fixture
def apt_get(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with only an apt-get that records its arguments; returns the file of the records."""
    log = tmp_path / "apt-get.log"
    program = tmp_path / "bin" / "apt-get"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setattr(debian_packages, "CNI_DIRECTORIES", (tmp_path / "none", tmp_path / "cni"))
    return log


def test_missing_packages_are_installed(apt_get: Path) -> None:
    packages = "buildah containerd containernetworking-plugins debootstrap iproute2 mount runc"
    install_packages()
    assert apt_get.read_text().splitlines() == [
        "-q update",
        f"-q install -y --no-install-recommends {packages}",
    ]


def test_nothing_is_installed_when_all_commands_exist(apt_get: Path) -> None:
    for command in debian_packages.COMMANDS:
        (apt_get.parent / "bin" / command).symlink_to("apt-get")
    (apt_get.parent / "cni").mkdir()
    (apt_get.parent / "cni" / "bridge").touch()
    install_packages()
    assert not apt_get.exists()


def test_error_names_the_packages_when_there_is_no_apt_get(apt_get: Path) -> None:
    (apt_get.parent / "bin" / "apt-get").unlink()
    with pytest.raises(
        CommandFailedError, match="Real nodes need buildah, containerd, containernetworking-plugins, "
    ):
        install_packages()


def test_prometheus_is_installed_when_missing(apt_get: Path) -> None:
    install_prometheus()
    for program in ("prometheus", "promtool"):
        (apt_get.parent / "bin" / program).symlink_to("apt-get")
    install_prometheus()
    assert apt_get.read_text().splitlines() == [
        "-q update",
        "-q install -y --no-install-recommends prometheus",
    ]


def test_prometheus_needs_root_only_to_be_installed(apt_get: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert why_no_prometheus() is None
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "only root can install them" in str(why_no_prometheus())
    for program in ("prometheus", "promtool"):
        (apt_get.parent / "bin" / program).symlink_to("apt-get")
    assert why_no_prometheus() is None


def test_real_nodes_need_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert why_no_real_nodes() is None
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "need root" in str(why_no_real_nodes())


def test_report_names_skipped_tests_without_root() -> None:
    test_file = "tests/live/nodes/test_real_nodes.py"
    without_root = (
        ["unshare", "--user"] if os.geteuid() == 0 else []
    )  # a user namespace in which this user is nobody
    result = subprocess.run(
        [*without_root, sys.executable, "-m", "pytest", "-p", "no:cacheprovider", test_file],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "NOT RUN: tests on real nodes" in result.stdout
    assert f"{test_file}::test_gpus_in_use_are_not_given_to_another_pod\n" in result.stdout
    assert "real nodes need root" in result.stdout
