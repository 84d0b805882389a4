"""A browser and the built site for all tests of this directory."""

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
        """Logs nothing."""


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Ignores closed connections: a browser closes them when it opens the next page."""


@contextmanager
def served(directory: Path) -> Iterator[str]:
    """Serves the files of a directory, and yields the address."""
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
    process = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(directory)],
        cwd=REPOSITORY,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_SECONDS,
    )
    assert process.returncode == 0, process.stderr
    with served(directory) as address:
        yield address


@pytest.fixture(scope="session")
def browser(request: pytest.FixtureRequest) -> Iterator[Browser]:
    if why := why_no_browser():
        pytest.skip(why)
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with (
        capture.global_and_fixture_disabled()
    ):  # the first installation takes a while and prints its progress
        program = chromium()
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Warns in red that the tests of the site were skipped, if no browser can be used."""
    why = why_no_browser()
    skipped = [
        report.nodeid
        for report in terminalreporter.stats.get("skipped", ())
        if why and why in str(report.longrepr)
    ]
    if skipped:
        terminalreporter.section("NOT RUN: the documentation in a browser", red=True, bold=True)
        terminalreporter.line(f"{len(skipped)} tests did not run, for {why}", red=True)
