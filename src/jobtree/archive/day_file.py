"""Encodes and decodes the file of one day: the archived leases that ended on that day (UTC).

The file is compressed and has one JSON object per line. The last line is the seal: the number of leases and
the SHA-256 of all lines before it. A file that was truncated or changed does not match its seal and is
refused as a whole. Leases are ordered by end and UID, and the compressor writes no time, so the same leases
always give the same bytes.
"""

import gzip
import re
import zlib
from collections.abc import Iterable
from datetime import UTC, date, datetime
from hashlib import sha256
from typing import Any

import msgspec

from jobtree.api.schema.quantities import DAY, format_time, parse_time

ObjectBody = dict[str, Any]

_NAME = re.compile(r"^leases-(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})\.jsonl\.gz\Z")
_EPOCH = date(1970, 1, 1)
_encode = msgspec.json.Encoder().encode


class BrokenFileError(Exception):
    """A damaged file of the archive; the message names it."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}")


class Seal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    leases: int
    sha256: str


def file_name(end: int) -> str:
    """Returns the name of the file for leases that ended at that instant."""
    return f"leases-{format_time(end)[:10]}.jsonl.gz"


def day_of(name: str) -> tuple[int, int] | None:
    """Returns the start and the end of a file's day, or None if the name is not that of an archive file."""
    match = _NAME.match(name)
    if match is None:
        return None
    try:
        start = (datetime.strptime(match["day"], "%Y-%m-%d").replace(tzinfo=UTC).date() - _EPOCH).days * DAY
    except ValueError:
        return None
    return start, start + DAY


def end_of(body: ObjectBody) -> int:
    return parse_time(body["status"]["end"])


def lease_uid(body: ObjectBody) -> str:
    """Returns the UID of a lease, or its name if a hand-written lease has no UID."""
    metadata: dict[str, str] = body["metadata"]
    return metadata.get("uid") or metadata["name"]


def encode_day(bodies: Iterable[ObjectBody]) -> bytes:
    """Returns the bytes of a file with these leases."""
    ordered = sorted(bodies, key=lambda body: (end_of(body), lease_uid(body)))
    lines = b"".join(_encode(body) + b"\n" for body in ordered)
    seal = _encode(Seal(len(ordered), sha256(lines).hexdigest())) + b"\n"
    return gzip.compress(lines + seal, mtime=0)


def decode_day(name: str, data: bytes) -> list[ObjectBody]:
    """Returns the leases in the bytes of a file. Raises BrokenFileError."""
    try:
        text = gzip.decompress(data)
    except (EOFError, OSError, zlib.error) as error:
        raise BrokenFileError(name, f"cut short or damaged ({error})") from None
    lines, _, last = text.rstrip(b"\n").rpartition(b"\n")
    lines += b"\n" if lines else b""
    try:
        seal = msgspec.json.decode(last, type=Seal)
    except msgspec.MsgspecError:
        raise BrokenFileError(name, "its last line, the seal, is missing") from None
    if sha256(lines).hexdigest() != seal.sha256 or lines.count(b"\n") != seal.leases:
        raise BrokenFileError(name, "its checksum does not match: it was changed after it was written")
    try:
        return [msgspec.json.decode(line, type=ObjectBody) for line in lines.splitlines()]
    except msgspec.MsgspecError as error:
        raise BrokenFileError(name, f"a line cannot be read ({error})") from None
