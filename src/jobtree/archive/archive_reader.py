"""Reads the leases of an archive, and reports files that cannot be read."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from jobtree.api.kinds.lease import Lease
from jobtree.api.schema.problems import InputError
from jobtree.api.validation.object_parser import parse_object
from jobtree.archive.archive_directory import ArchiveError
from jobtree.archive.day_file import BrokenFileError, ObjectBody, day_of, decode_day


class Files(Protocol):
    """The files of an archive. Both methods raise ArchiveError."""

    def names(self) -> list[str]: ...

    def fetch(self, name: str) -> bytes: ...


class ArchiveContents(NamedTuple):
    """Archived leases, and files (or the whole archive) that could not be read, with the reason."""

    bodies: list[ObjectBody]
    problems: list[str]


def read_archive(
    files: Files, since: int | None = None, step: Callable[[str], None] = lambda _: None
) -> ArchiveContents:
    """Returns the leases in all files of days after ``since``; calls ``step`` with the name of each file."""
    contents = ArchiveContents([], [])
    try:
        names = files.names()
    except ArchiveError as error:
        return ArchiveContents([], [str(error)])
    for name in names:
        day = day_of(name)
        if day is None or (since is not None and day[1] <= since):
            continue
        step(name)
        try:
            contents.bodies.extend(leases_in(name, files.fetch(name)))
        except (ArchiveError, BrokenFileError) as error:
            contents.problems.append(str(error))
    return contents


def leases_in(name: str, data: bytes) -> list[ObjectBody]:
    """Returns the leases of a file. Raises BrokenFileError if it contains anything but closed Leases."""
    bodies = decode_day(name, data)
    for body in bodies:
        try:
            parsed = parse_object(body, name)
        except InputError as error:
            raise BrokenFileError(name, str(error)) from None
        if not isinstance(parsed, Lease) or parsed.status.end is None:
            raise BrokenFileError(name, "it contains an object that is not a closed Lease")
    return bodies
