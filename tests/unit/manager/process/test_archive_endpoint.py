"""The manager's archive over HTTP: read-only, by the leader alone, and nothing but files of the archive."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import ClientSession

from jobtree.archive.archive_directory import ArchiveDirectory
from jobtree.manager.metrics import Metrics
from jobtree.manager.process.archive_endpoint import ArchivePages
from jobtree.manager.process.health import Health
from tests.unit.archive.test_archive_directory import DAY_1, lease
from tests.unit.manager.process.test_health import seen_view


@pytest.fixture
def archive(tmp_path: Path) -> ArchiveDirectory:
    found = ArchiveDirectory(str(tmp_path / "archive"))
    found.add([lease(1)])
    (tmp_path / "secret").write_text("not for you")
    return found


def asked(
    archive: ArchiveDirectory, *paths: str, method: str = "GET", leads: bool = True
) -> list[tuple[int, bytes]]:
    async def ask() -> list[tuple[int, bytes]]:
        health = Health(seen_view(), Metrics())
        health.archive = ArchivePages(archive, lambda: leads)
        runner = await health.serve("127.0.0.1:0")
        port = runner.addresses[0][1]
        try:
            async with ClientSession() as session:
                found = []
                for path in paths:
                    async with session.request(method, f"http://127.0.0.1:{port}{path}") as answer:
                        found.append((answer.status, await answer.read()))
                return found
        finally:
            await runner.cleanup()

    return asyncio.run(ask())


def test_files_are_listed_and_read(archive: ArchiveDirectory) -> None:
    assert asked(archive, "/archive/", f"/archive/{DAY_1}") == [
        (200, f'["{DAY_1}"]'.encode()),
        (200, archive.fetch(DAY_1)),
    ]


def test_a_standby_says_that_another_has_it(archive: ArchiveDirectory) -> None:
    for status, text in asked(archive, "/archive/", f"/archive/{DAY_1}", leads=False):
        assert (status, b"does not lead" in text) == (503, True)


@pytest.mark.parametrize(
    "path", ["/archive/..%2Fsecret", "/archive/.lock", "/archive/leases-2020-01-01.jsonl.gz", "/archive/x/y"]
)
def test_nothing_else_is_served(archive: ArchiveDirectory, path: str) -> None:
    assert asked(archive, path)[0][0] == 404


def test_it_is_only_read(archive: ArchiveDirectory) -> None:
    for method in ("POST", "PUT", "DELETE"):
        assert asked(archive, f"/archive/{DAY_1}", method=method)[0][0] == 405


def test_a_disk_that_is_gone_is_told(tmp_path: Path) -> None:
    ((status, text),) = asked(ArchiveDirectory(str(tmp_path / "gone")), "/archive/")
    assert (status, b"cannot read" in text) == (500, True)
