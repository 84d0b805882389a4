"""Finds the Chromium of the system for the tests; without one, root installs Debian's package."""

import os
import shutil
from pathlib import Path

from tests.live.programs.long_command import CommandFailedError, run_command

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
INSTALL_SECONDS = 600


def find_chromium() -> Path | None:
    return next((Path(path) for name in NAMES if (path := shutil.which(name))), None)


def why_no_browser() -> str | None:
    """Returns why no browser can be used; None if there is one or it can be installed."""
    if find_chromium() is not None:
        return None
    if os.geteuid() != 0:
        return "there is no Chromium here, and only root can install one: apt-get install chromium"
    if shutil.which("apt-get") is None:
        return "there is no Chromium here and no apt-get to install one: install Chromium by hand"
    return None


def chromium() -> Path:
    """Returns the browser, installed if necessary. Raises CommandFailedError."""
    if find_chromium() is None:
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for arguments in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
            doing = f"apt-get {' '.join(arguments)}"
            run_command(
                ["apt-get", "-q", *arguments], doing, within_seconds=INSTALL_SECONDS, environment=environment
            )
    browser = find_chromium()
    if browser is None:
        raise CommandFailedError("apt-get installed Chromium, but it is not on the PATH")
    return browser
