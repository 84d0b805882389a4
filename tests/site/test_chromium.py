"""The browser is found or installed, or the reason why not is given."""

import os
from pathlib import Path

import pytest

from tests.site.chromium import chromium, find_chromium, why_no_browser


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a browser; its apt-get logs its arguments and installs the browser."""
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


def test_missing_browser_is_installed_once(machine: Path) -> None:
    assert why_no_browser() is None
    assert chromium() == chromium() == machine / "bin" / "chromium"
    assert (machine / "log").read_text().splitlines() == [
        "-q update",
        "-q install -y --no-install-recommends chromium",
    ]


def test_only_root_can_install_a_browser(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "only root can install one" in str(why_no_browser())
    browser = machine / "bin" / "chromium"
    browser.write_text("#!/bin/sh\n")
    browser.chmod(0o755)
    assert why_no_browser() is None
    assert find_chromium() == browser


def test_advice_is_given_when_there_is_no_apt_get(machine: Path) -> None:
    (machine / "bin" / "apt-get").unlink()
    assert "install Chromium by hand" in str(why_no_browser())
