"""Reads streams of YAML or JSON documents as dicts, each with its place in the stream.

A stream has any number of documents. Empty documents are skipped, and a ``List`` counts as its items. The
``InputError`` for an unreadable document names the file, the document and, if possible, the line.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, NoReturn

from jobtree.api.documents.yaml_writer import dump_yaml
from jobtree.api.schema.problems import InputError, shown

__all__ = ["Document", "InputError", "dump_yaml", "read_documents"]

MAX_DEPTH = 100
TOO_DEEP = f"is nested more than {MAX_DEPTH} levels deep"

_SPACE = re.compile(r"\s*")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class Document(NamedTuple):
    """A raw object and its place: ``cluster.yaml, document 3``."""

    where: str
    body: dict[str, Any]


def read_documents(text: str | bytes, source: str) -> list[Document]:
    """Returns all objects of a YAML or JSON stream, in order. ``source`` is the file's name, for messages."""
    if isinstance(text, bytes):
        text = _decode(text, source)
    text = text.removeprefix("\ufeff")
    documents: list[Document] = []
    for number, body in _values(text, source):
        documents.extend(_flatten(body, f"{source}, document {number}"))
    return documents


def _decode(raw: bytes, source: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InputError(source, [f"is not UTF-8: byte {error.start} is {raw[error.start]:#04x}"]) from None


def _values(text: str, source: str) -> Iterable[tuple[int, object]]:
    """Reads JSON if the text is JSON, else YAML: a YAML mapping in flow style also begins with a brace."""
    if text.lstrip()[:1] == "{":
        try:
            return list(_read_json(text, source))
        except json.JSONDecodeError:
            pass
    from jobtree.api.documents.yaml_reader import read_yaml  # noqa: PLC0415  PyYAML is slow to load

    return read_yaml(text, source, MAX_DEPTH)


def _read_json(text: str, source: str) -> Iterator[tuple[int, object]]:
    decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_refuse)
    has_surrogates = _SURROGATE.search(text) is not None
    position, number = _skip_space(text, 0), 1
    while position < len(text):
        try:
            value, position = decoder.raw_decode(text, position)
            _check_depth(value)
            if has_surrogates:  # refuses those without a partner
                json.dumps(value, ensure_ascii=False).encode()
        except json.JSONDecodeError:
            raise
        except RecursionError:
            raise InputError(f"{source}, document {number}", [TOO_DEEP]) from None
        except ValueError as error:
            raise InputError(f"{source}, document {number}", [str(error)]) from None
        yield number, value
        position, number = _skip_space(text, position), number + 1


def _check_depth(value: object) -> None:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    raise ValueError(TOO_DEEP)


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    assert match is not None
    return match.end()


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {repeated!r} occurs twice in one mapping")
    return mapping


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large a number")
    return number


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


def _flatten(body: object, where: str) -> Iterator[Document]:
    if body is None:
        return
    if not isinstance(body, dict):
        raise InputError(where, [f"must be a mapping with apiVersion and kind, not {shown(body)}"])
    if body.get("kind") != "List":
        if body:
            yield Document(where, body)
        return
    items = body.get("items") or []
    if not isinstance(items, list):
        raise InputError(where, [f"items: must be a list, not {shown(items)}"])
    for position, item in enumerate(items):
        yield from _flatten(item, f"{where}, item {position}")
