"""The archive in a directory: leases are added once per UID, files are sealed and replaced in one step."""

import gzip
import os
from pathlib import Path
from typing import Any

import pytest

from jobtree.archive.archive_directory import ArchiveDirectory, ArchiveError
from jobtree.archive.archive_reader import read_archive
from jobtree.archive.day_file import BrokenFileError, decode_day, encode_day, file_name

DAY_1 = "leases-2026-01-05.jsonl.gz"
DAY_2 = "leases-2026-01-06.jsonl.gz"


def lease(number: int, end: str = "2026-01-05T12:00:00Z", **spec: Any) -> dict[str, Any]:  # noqa: ANN401  fields of the spec
    return {
        "apiVersion": "rq.davidlangworthy.io/v1",
        "kind": "Lease",
        "metadata": {"name": f"train-{number}", "uid": f"uid-{number}"},
        "spec": {
            "runRef": {"namespace": "lab", "name": "train", "uid": "r"},
            "owner": "org:lab",
            "payer": {"owner": "org:lab", "budget": "lab", "envelope": "own"},
            "class": "Owned",
            "role": "Active",
            "group": 0,
            "flavor": "H100-80GB",
            "slots": [f"a01#{number}"],
            "start": "2026-01-05T09:00:00Z",
            "rate": "1",
            "reason": "Start",
            **spec,
        },
        "status": {"end": end, "closureReason": "Completed"},
    }


@pytest.fixture
def archive(tmp_path: Path) -> ArchiveDirectory:
    return ArchiveDirectory(str(tmp_path / "archive"))


def names_in(archive: ArchiveDirectory) -> list[str]:
    return [body["metadata"]["name"] for body in read_archive(archive).bodies]


def test_lease_is_in_the_file_of_the_day_on_which_it_ended(archive: ArchiveDirectory) -> None:
    archive.add([lease(1), lease(2, "2026-01-06T00:00:00Z"), lease(3, "2026-01-05T23:59:59.999Z")])
    assert archive.names() == [DAY_1, DAY_2]
    assert names_in(archive) == ["train-1", "train-3", "train-2"]


def test_lease_that_is_added_again_is_archived_once(archive: ArchiveDirectory) -> None:
    archive.add([lease(1)])
    before = archive.fetch(DAY_1)
    archive.add([lease(1)])
    assert archive.fetch(DAY_1) == before
    archive.add([lease(2), lease(1)])
    assert names_in(archive) == ["train-1", "train-2"]


def test_file_does_not_depend_on_the_order_of_adding(archive: ArchiveDirectory) -> None:
    archive.add([lease(2), lease(1)])
    archive.add([lease(3)])
    assert archive.fetch(DAY_1) == encode_day([lease(3), lease(1), lease(2)])


def test_file_has_json_lines_and_a_seal(archive: ArchiveDirectory) -> None:
    archive.add([lease(1)])
    first, last = gzip.decompress(archive.fetch(DAY_1)).splitlines()
    assert b'"name":"train-1"' in first
    assert b'"leases":1,"sha256":' in last


def damaged(data: bytes) -> dict[str, tuple[bytes, str]]:
    text = gzip.decompress(data)
    lines = text.splitlines(keepends=True)
    return {
        "cut": (data[: len(data) // 2], "cut short or damaged"),
        "empty": (b"", "the seal, is missing"),
        "noise": (b"\x00" * 100, "cut short or damaged"),
        "edited": (gzip.compress(text.replace(b"train-1", b"train-9")), "checksum does not match"),
        "a lease less": (gzip.compress(lines[0] + lines[2]), "checksum does not match"),
        "without seal": (gzip.compress(lines[0] + lines[1]), "the seal, is missing"),
    }


@pytest.mark.parametrize("how", ["cut", "empty", "noise", "edited", "a lease less", "without seal"])
def test_damaged_file_is_reported_and_the_others_are_read(archive: ArchiveDirectory, how: str) -> None:
    archive.add([lease(1), lease(2), lease(3, "2026-01-06T01:00:00Z")])
    data, why = damaged(archive.fetch(DAY_1))[how]
    (archive.path / DAY_1).write_bytes(data)
    contents = read_archive(archive)
    assert [body["metadata"]["name"] for body in contents.bodies] == ["train-3"]
    (problem,) = contents.problems
    assert problem.startswith(DAY_1)
    assert why in problem


def test_nothing_is_added_to_a_damaged_file(archive: ArchiveDirectory) -> None:
    archive.add([lease(1)])
    damaged_bytes = archive.fetch(DAY_1)[:20]
    (archive.path / DAY_1).write_bytes(damaged_bytes)
    with pytest.raises(ArchiveError, match=DAY_1):
        archive.add([lease(2)])
    assert archive.fetch(DAY_1) == damaged_bytes


def test_file_that_is_not_compressed_is_refused() -> None:
    with pytest.raises(BrokenFileError, match="cut short"):
        decode_day(DAY_1, b"hello")


def test_other_files_are_ignored(archive: ArchiveDirectory) -> None:
    archive.add([lease(1)])
    for name in ("README", "leases-2026-13-01.jsonl.gz", f".{DAY_1}.new", f"{DAY_1}.bak"):
        (archive.path / name).write_text("not ours")
    assert archive.names() == [DAY_1]


@pytest.mark.parametrize("call", ["fsync", "open"])
def test_archive_does_not_change_when_the_disk_is_full(
    archive: ArchiveDirectory, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    archive.add([lease(1)])

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(ArchiveError, match="No space left on device"):
        archive.add([lease(2)])
    monkeypatch.undo()
    assert names_in(archive) == ["train-1"]
    assert not list(archive.path.glob("*.new"))
    archive.add([lease(2)])
    assert names_in(archive) == ["train-1", "train-2"]


def test_directory_that_cannot_be_created_raises(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ArchiveError, match="cannot write to"):
        ArchiveDirectory(str(tmp_path / "file" / "archive")).add([lease(1)])


def test_add_raises_while_another_process_holds_the_lock(archive: ArchiveDirectory) -> None:
    archive.add([lease(1)])
    with archive._locked(), pytest.raises(ArchiveError, match="cannot write to"):
        ArchiveDirectory(str(archive.path)).add([lease(2)])
    archive.add([lease(2)])
    assert names_in(archive) == ["train-1", "train-2"]


def test_crash_before_the_rename_leaves_the_old_file(
    archive: ArchiveDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.add([lease(1)])

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        archive.add([lease(2)])
    monkeypatch.undo()
    assert names_in(archive) == ["train-1"]
    archive.add([lease(2)])
    assert names_in(archive) == ["train-1", "train-2"]
    assert sorted(os.listdir(archive.path)) == [".lock", DAY_1]  # noqa: PTH208  only names are needed


def test_files_of_earlier_days_are_not_read(archive: ArchiveDirectory) -> None:
    archive.add([lease(1), lease(2, "2026-01-06T01:00:00Z")])
    opened: list[str] = []
    read_archive(archive, since=1767657600000, step=opened.append)  # 2026-01-06T00:00:00Z
    assert opened == [DAY_2]
    assert file_name(1767657600000) == DAY_2
