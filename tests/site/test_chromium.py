"""Where the browser comes from, and what is said where there is none."""

import os
from pathlib import Path

import pytest

from tests.site.chromium import chromium, find_chromium, why_no_browser


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a browser, whose apt-get notes what it is asked for and installs that."""
    programs = tmp_path / "bin"
    programs.mkdir()
    apt_get = programs / "apt-get"
    browser = programs / "chromium"
    apt_get.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/log\n[ "$2" = install ] || exit 0\n'
        f"echo '#!/bin/sh' > {browser}\n/bin/chmod +x {browser}\n"
    )
    apt_get.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tmp_path


def test_a_browser_that_is_missing_is_installed_once(bare: Path) -> None:
    assert why_no_browser() is None
    assert chromium() == chromium() == bare / "bin" / "chromium"
    assert (bare / "log").read_text().splitlines() == [
        "-q update",
        "-q install -y --no-install-recommends chromium",
    ]


def test_only_root_can_install_one(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "only root can install one" in str(why_no_browser())
    chromium_there = bare / "bin" / "chromium"
    chromium_there.write_text("#!/bin/sh\n")
    chromium_there.chmod(0o755)
    assert why_no_browser() is None
    assert find_chromium() == chromium_there


def test_without_apt_get_it_says_what_to_do(bare: Path) -> None:
    (bare / "bin" / "apt-get").unlink()
    assert "install Chromium by hand" in str(why_no_browser())
