"""Reading an archive, wherever its files are: what is whole is given, what is not is named."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from jobtree.api.kinds.lease import Lease
from jobtree.api.schema.problems import InputError
from jobtree.api.validation.object_parser import parse_object
from jobtree.archive.archive_directory import ArchiveError
from jobtree.archive.day_file import BrokenFileError, ObjectBody, day_of, decode_day


class Files(Protocol):
    """Where the files of an archive are. Both raise ArchiveError."""

    def names(self) -> list[str]: ...

    def fetch(self, name: str) -> bytes: ...


class ArchiveContents(NamedTuple):
    """Archived leases, and files (or the whole archive) that could not be read, with the reason."""

    bodies: list[ObjectBody]
    problems: list[str]


def read_archive(
    files: Files, since: int | None = None, step: Callable[[str], None] = lambda _: None
) -> ArchiveContents:
    """All leases that ended after ``since``; ``step`` is told of every file."""
    found = ArchiveContents([], [])
    try:
        names = files.names()
    except ArchiveError as broken:
        return ArchiveContents([], [str(broken)])
    for name in names:
        day = day_of(name)
        if day is None or (since is not None and day[1] <= since):
            continue
        step(name)
        try:
            found.bodies.extend(leases_in(name, files.fetch(name)))
        except (ArchiveError, BrokenFileError) as broken:
            found.problems.append(str(broken))
    return found


def leases_in(name: str, data: bytes) -> list[ObjectBody]:
    """The leases of a file; what is not an ended Lease makes it a broken one."""
    bodies = decode_day(name, data)
    for body in bodies:
        try:
            parsed = parse_object(body, name)
        except InputError as broken:
            raise BrokenFileError(name, str(broken)) from None
        if not isinstance(parsed, Lease) or parsed.status.end is None:
            raise BrokenFileError(name, "it holds something that is not an ended Lease")
    return bodies
