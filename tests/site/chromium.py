"""The browser of the tests: the system's Chromium. Where it is missing, root installs Debian's package."""

import os
import shutil
from pathlib import Path

from tests.live.progress import CommandFailedError, run

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
INSTALL_SECONDS = 600


def find_chromium() -> Path | None:
    return next((Path(found) for name in NAMES if (found := shutil.which(name))), None)


def why_no_browser() -> str | None:
    """Why there is no browser here and none can be installed, if that is so."""
    if find_chromium() is not None:
        return None
    if os.geteuid() != 0:
        return "there is no Chromium here, and only root can install one: apt-get install chromium"
    if shutil.which("apt-get") is None:
        return "there is no Chromium here and no apt-get to install one: install Chromium by hand"
    return None


def chromium() -> Path:
    """The browser, installed if need be. Raises CommandFailedError."""
    if find_chromium() is None:
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for arguments in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
            doing = f"apt-get {' '.join(arguments)}"
            run(["apt-get", "-q", *arguments], doing, within_seconds=INSTALL_SECONDS, environment=environment)
    found = find_chromium()
    if found is None:
        raise CommandFailedError("apt-get installed Chromium, and yet there is none on the PATH")
    return found
