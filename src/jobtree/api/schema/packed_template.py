"""Keeps the pod template of a Run as JSON, compressed if it is large.

Decoded, a template of many small values takes more than twenty times its size, and a manager holds every Run.
It is decoded when pods are built from it and when the Run is checked.
"""

import zlib
from typing import Any

import msgspec

LARGE_BYTES = 4096  # from which JSON is compressed

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class PackedTemplate:
    """A PodTemplateSpec. Two of them are equal if their documents are."""

    __slots__ = ("_packed", "size")

    def __init__(self, document: dict[str, Any]) -> None:
        encoded = msgspec.json.encode(document, order="deterministic")
        self.size = len(encoded)
        self._packed = zlib.compress(encoded, 1) if self.size >= LARGE_BYTES else encoded

    def document(self) -> dict[str, Any]:
        """Decodes the template."""
        return _decode(zlib.decompress(self._packed) if self.size >= LARGE_BYTES else self._packed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PackedTemplate) and self._packed == other._packed

    def __hash__(self) -> int:
        return hash(self._packed)


def pack(kind: type, value: object) -> PackedTemplate:
    """Converts the value of a field for msgspec. Raises TypeError or ValueError if it is no template."""
    if kind is not PackedTemplate:
        raise NotImplementedError
    if not isinstance(value, dict):
        raise TypeError("must be a mapping")
    try:
        return PackedTemplate(value)
    except OverflowError as broken:
        raise ValueError(f"a number is out of range: {broken}") from None


def unpack(value: object) -> dict[str, Any]:
    """Returns what msgspec encodes in place of a template."""
    if not isinstance(value, PackedTemplate):
        raise NotImplementedError
    return value.document()
