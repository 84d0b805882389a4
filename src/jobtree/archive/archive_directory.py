"""An archive in a directory: leases are added, and never taken out.

Adding is idempotent: a lease is its UID, and one that is there already is not written again, so whoever does
not know whether it was added adds it once more. A day's file is replaced as a whole, in one step, after its
new bytes are on the disk: a crash leaves the old file or the new one. A lock keeps two processes from
replacing each other's; one that finds it taken gives up, and adds the same leases later.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

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


class ArchiveError(Exception):
    """Leases could not be added, or the archive cannot be read; the message says why."""


class ArchiveDirectory:
    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def add(self, bodies: Iterable[ObjectBody]) -> None:
        """Write closed leases down, for good. Raises ArchiveError; then some may be there, none is lost."""
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
        except BrokenFileError as broken:
            raise ArchiveError(f"{self.path}/{broken}: move it away or restore it from a backup") from None
        except OSError as broken:
            raise ArchiveError(f"cannot write to {self.path}: {broken.strerror or broken}") from None

    def names(self) -> list[str]:
        """The files, oldest day first. Raises ArchiveError."""
        try:
            return sorted(name for name in os.listdir(self.path) if day_of(name) is not None)  # noqa: PTH208  names are all there is to know
        except OSError as broken:
            raise ArchiveError(f"cannot read {self.path}: {broken.strerror or broken}") from None

    def fetch(self, name: str) -> bytes:
        """The bytes of a file. Raises ArchiveError."""
        try:
            return (self.path / name).read_bytes()
        except OSError as broken:
            raise ArchiveError(f"cannot read {self.path / name}: {broken.strerror or broken}") from None

    def _add_to(self, name: str, leases: dict[str, ObjectBody]) -> None:
        path = self.path / name
        known = (
            {lease_uid(body): body for body in decode_day(name, path.read_bytes())} if path.exists() else {}
        )
        if leases.keys() <= known.keys():
            return
        self._replace(path, encode_day((leases | known).values()))

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
        """The names on the disk too, not only the bytes."""
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
