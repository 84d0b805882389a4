"""A browser and a built site, once for all tests here."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.site.chromium import chromium, why_no_browser

REPOSITORY = Path(__file__).parents[2]
BUILD_SECONDS = 120


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nobody reads a log of requests."""


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """A browser that goes on to the next page hangs up: nothing is wrong."""


@contextmanager
def served(directory: Path) -> Iterator[str]:
    """The address at which the files of a directory are served."""
    with _Server(("127.0.0.1", 0), partial(_Quiet, directory=str(directory))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the documentation, built as `make docs` builds it."""
    directory = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(directory)],
        cwd=REPOSITORY,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    with served(directory) as address:
        yield address


@pytest.fixture(scope="session")
def browser(request: pytest.FixtureRequest) -> Iterator[Browser]:
    if why := why_no_browser():
        pytest.skip(why)
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():  # installing takes a while the first time, and says so
        program = chromium()
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says loudly that the site was not looked at, where there is no browser and none can be installed."""
    why = why_no_browser()
    skipped = [
        one.nodeid for one in terminalreporter.stats.get("skipped", ()) if why and why in str(one.longrepr)
    ]
    if skipped:
        terminalreporter.section("NOT RUN: the documentation in a browser", red=True, bold=True)
        terminalreporter.line(f"{len(skipped)} tests did not run, for {why}", red=True)
