"""The archive over HTTP: the leader serves files of the archive, for reading only."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import ClientSession

from jobtree.archive.archive_directory import ArchiveDirectory
from jobtree.manager.metrics import Metrics
from jobtree.manager.process.archive_endpoint import ArchivePages
from jobtree.manager.process.health import Health
from tests.unit.archive.test_archive_directory import DAY_1, lease
from tests.unit.manager.process.test_health import listed_view


@pytest.fixture
def archive(tmp_path: Path) -> ArchiveDirectory:
    directory = ArchiveDirectory(str(tmp_path / "archive"))
    directory.add([lease(1)])
    (tmp_path / "secret").write_text("not for you")
    return directory


def responses_of(
    archive: ArchiveDirectory, *paths: str, method: str = "GET", leads: bool = True
) -> list[tuple[int, bytes]]:
    async def ask() -> list[tuple[int, bytes]]:
        health = Health(listed_view(), Metrics())
        health.archive = ArchivePages(archive, lambda: leads)
        runner = await health.serve("127.0.0.1:0")
        port = runner.addresses[0][1]
        try:
            async with ClientSession() as session:
                responses = []
                for path in paths:
                    async with session.request(method, f"http://127.0.0.1:{port}{path}") as answer:
                        responses.append((answer.status, await answer.read()))
                return responses
        finally:
            await runner.cleanup()

    return asyncio.run(ask())


def test_files_of_the_archive_are_listed_and_read(archive: ArchiveDirectory) -> None:
    assert responses_of(archive, "/archive/", f"/archive/{DAY_1}") == [
        (200, f'["{DAY_1}"]'.encode()),
        (200, archive.fetch(DAY_1)),
    ]


def test_standby_answers_that_only_the_leader_has_the_archive(archive: ArchiveDirectory) -> None:
    for status, text in responses_of(archive, "/archive/", f"/archive/{DAY_1}", leads=False):
        assert (status, b"does not lead" in text) == (503, True)


@pytest.mark.parametrize(
    "path", ["/archive/..%2Fsecret", "/archive/.lock", "/archive/leases-2020-01-01.jsonl.gz", "/archive/x/y"]
)
def test_other_paths_are_not_served(archive: ArchiveDirectory, path: str) -> None:
    assert responses_of(archive, path)[0][0] == 404


def test_archive_cannot_be_written(archive: ArchiveDirectory) -> None:
    for method in ("POST", "PUT", "DELETE"):
        assert responses_of(archive, f"/archive/{DAY_1}", method=method)[0][0] == 405


def test_missing_directory_is_reported(tmp_path: Path) -> None:
    ((status, text),) = responses_of(ArchiveDirectory(str(tmp_path / "gone")), "/archive/")
    assert (status, b"cannot read" in text) == (500, True)
