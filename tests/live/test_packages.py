"""What real nodes need from the system, and what is said where they cannot run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live import packages
from tests.live.packages import (
    install_packages,
    install_prometheus,
    why_no_prometheus,
    why_no_real_nodes,
)
from tests.live.progress import CommandFailedError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def apt_get(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which nothing is installed but an apt-get that notes what it is asked for."""
    log = tmp_path / "apt-get.log"
    program = tmp_path / "bin" / "apt-get"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setattr(packages, "CNI_DIRECTORIES", (tmp_path / "none", tmp_path / "cni"))
    return log


def test_what_is_missing_is_installed(apt_get: Path) -> None:
    everything = "buildah containerd containernetworking-plugins debootstrap iproute2 mount runc"
    install_packages()
    assert apt_get.read_text().splitlines() == [
        "-q update",
        f"-q install -y --no-install-recommends {everything}",
    ]


def test_what_is_there_is_left_alone(apt_get: Path) -> None:
    for command in packages.COMMANDS:
        (apt_get.parent / "bin" / command).symlink_to("apt-get")
    (apt_get.parent / "cni").mkdir()
    (apt_get.parent / "cni" / "bridge").touch()
    install_packages()
    assert not apt_get.exists()


def test_without_apt_get_it_says_what_to_install(apt_get: Path) -> None:
    (apt_get.parent / "bin" / "apt-get").unlink()
    with pytest.raises(
        CommandFailedError, match="Real nodes need buildah, containerd, containernetworking-plugins, "
    ):
        install_packages()


def test_prometheus_is_installed_where_it_is_missing(apt_get: Path) -> None:
    install_prometheus()
    for program in ("prometheus", "promtool"):
        (apt_get.parent / "bin" / program).symlink_to("apt-get")
    install_prometheus()
    assert apt_get.read_text().splitlines() == [
        "-q update",
        "-q install -y --no-install-recommends prometheus",
    ]


def test_only_root_can_install_prometheus_and_anybody_can_run_it(
    apt_get: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert why_no_prometheus() is None
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "only root can install them" in str(why_no_prometheus())
    for program in ("prometheus", "promtool"):
        (apt_get.parent / "bin" / program).symlink_to("apt-get")
    assert why_no_prometheus() is None


def test_only_root_can_run_real_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert why_no_real_nodes() is None
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "need root" in str(why_no_real_nodes())


def test_without_root_the_tests_that_did_not_run_are_named_loudly() -> None:
    tests = "tests/live/test_real_nodes.py"
    not_root = ["unshare", "--user"] if os.geteuid() == 0 else []  # in which this user is nobody
    ran = subprocess.run(
        [*not_root, sys.executable, "-m", "pytest", "-p", "no:cacheprovider", tests],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "NOT RUN: tests on real nodes" in ran.stdout
    assert f"{tests}::test_gpus_that_are_taken_are_not_given_twice\n" in ran.stdout
    assert "real nodes need root" in ran.stdout
