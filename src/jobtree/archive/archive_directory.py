"""Adds closed leases to an archive in a directory, and reads its files.

A lease is identified by its UID, and adding a lease again changes nothing. So a caller that does not know
whether it added a lease adds it again. The file of a day is replaced in one step after the new file is on the
disk, so a crash leaves the old file or the new one. A lock prevents two processes from writing at once; a
process that finds it taken raises ArchiveError, and must add its leases later.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from jobtree.api.schema.problems import JobtreeError
from jobtree.archive.day_file import (
    BrokenFileError,
    ObjectBody,
    day_of,
    decode_day,
    encode_day,
    end_of,
    file_name,
    lease_uid,
)

LOCK = ".lock"


class ArchiveError(JobtreeError):
    """The archive cannot be read or written; the message says why."""

    exit_code = 74


class ArchiveDirectory:
    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def add(self, bodies: Iterable[ObjectBody]) -> None:
        """Adds closed leases. Raises ArchiveError; then some of them may be added."""
        days: dict[str, dict[str, ObjectBody]] = {}
        for body in bodies:
            days.setdefault(file_name(end_of(body)), {})[lease_uid(body)] = body
        if not days:
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with self._locked():
                for name, leases in sorted(days.items()):
                    self._add_to(name, leases)
        except BrokenFileError as error:
            raise ArchiveError(f"{self.path}/{error}: move it away or restore it from a backup") from None
        except OSError as error:
            raise ArchiveError(f"cannot write to {self.path}: {error.strerror or error}") from None

    def names(self) -> list[str]:
        """Returns the names of the files, oldest day first. Raises ArchiveError."""
        try:
            return sorted(name for name in os.listdir(self.path) if day_of(name) is not None)  # noqa: PTH208  only names are needed
        except OSError as error:
            raise ArchiveError(f"cannot read {self.path}: {error.strerror or error}") from None

    def fetch(self, name: str) -> bytes:
        """Returns the bytes of a file. Raises ArchiveError."""
        try:
            return (self.path / name).read_bytes()
        except OSError as error:
            raise ArchiveError(f"cannot read {self.path / name}: {error.strerror or error}") from None

    def _add_to(self, name: str, leases: dict[str, ObjectBody]) -> None:
        path = self.path / name
        archived = (
            {lease_uid(body): body for body in decode_day(name, path.read_bytes())} if path.exists() else {}
        )
        if leases.keys() <= archived.keys():
            return
        self._replace(path, encode_day((leases | archived).values()))

    def _replace(self, path: Path, data: bytes) -> None:
        new = path.with_name(f".{path.name}.new")
        try:
            with new.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
        except OSError:
            new.unlink(missing_ok=True)
            raise
        self._sync()

    def _sync(self) -> None:
        """Flushes the directory, so that the new name of the file is on the disk too."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self.path / LOCK, os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(descriptor)
