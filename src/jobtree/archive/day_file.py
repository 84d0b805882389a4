"""The file of one day: all archived leases that ended on it (UTC), one JSON object a line, compressed.

The last line is the seal: how many leases there are, and the SHA-256 of all lines before it. A file that was
cut short, or changed in any way, does not match its seal and is refused as a whole. Leases are ordered by end
and UID and the compressor writes no clock, so the same leases always give the same bytes.
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
    """A file of the archive is not what was written; the message names it."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}")


class Seal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    leases: int
    sha256: str


def file_name(end: int) -> str:
    """The file for leases that ended at that instant."""
    return f"leases-{format_time(end)[:10]}.jsonl.gz"


def day_of(name: str) -> tuple[int, int] | None:
    """First instant and end of a file's day; None for what is no file of the archive."""
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
    """What a lease is known by; one that was written by hand may have nothing but its name."""
    metadata: dict[str, str] = body["metadata"]
    return metadata.get("uid") or metadata["name"]


def encode_day(bodies: Iterable[ObjectBody]) -> bytes:
    """The bytes of a file with these leases."""
    ordered = sorted(bodies, key=lambda body: (end_of(body), lease_uid(body)))
    lines = b"".join(_encode(body) + b"\n" for body in ordered)
    seal = _encode(Seal(len(ordered), sha256(lines).hexdigest())) + b"\n"
    return gzip.compress(lines + seal, mtime=0)


def decode_day(name: str, data: bytes) -> list[ObjectBody]:
    """The leases in a file's bytes. Raises BrokenFileError."""
    try:
        text = gzip.decompress(data)
    except (EOFError, OSError, zlib.error) as broken:
        raise BrokenFileError(name, f"cut short or damaged ({broken})") from None
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
    except msgspec.MsgspecError as broken:
        raise BrokenFileError(name, f"a line cannot be read ({broken})") from None
