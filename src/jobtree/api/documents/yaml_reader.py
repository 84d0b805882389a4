"""Reads YAML as Kubernetes manifests use it.

A plain scalar is a null (empty, ``~``, ``null``), a boolean (``true``, ``false``), a number, or a string:

* ``yes``, ``on``, ``12:30:00`` and times are strings; the field decides what they mean;
* ``010`` is a string too, since it is eight in YAML 1.1 and ten in YAML 1.2;
* every key is a string, and may occur only once in a mapping;
* merge keys, unknown tags, and aliases that expand to too many values are refused.

Values are built from the events of the parser (libyaml if it is installed) and without recursion: PyYAML's
constructors take most of the time for a large file, and its composer fails on deep nesting.
"""

import math
import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn

import yaml
from yaml import events

from jobtree.api.schema.problems import InputError

_PREFIX: Final = "tag:yaml.org,2002:"
STR: Final = _PREFIX + "str"
INT: Final = _PREFIX + "int"
FLOAT: Final = _PREFIX + "float"
BOOL: Final = _PREFIX + "bool"
NULL: Final = _PREFIX + "null"
MAP: Final = _PREFIX + "map"
SEQ: Final = _PREFIX + "seq"

MAX_EXPANDED_VALUES: Final = 1_000_000

_WORDS: Final = {
    "": NULL,
    "~": NULL,
    **dict.fromkeys(("null", "Null", "NULL"), NULL),
    **dict.fromkeys(("true", "True", "TRUE", "false", "False", "FALSE"), BOOL),
}
_INT: Final = re.compile(r"[-+]?(0|[1-9][0-9]{0,99})|0x[0-9a-fA-F]{1,99}|0o[0-7]{1,99}")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NUMERIC: Final = frozenset("+-.0123456789")

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def tag_of(text: str) -> str:
    """Returns the tag of a plain scalar."""
    if text and text[0] in _NUMERIC:
        if _INT.fullmatch(text):
            return INT
        return FLOAT if _FLOAT.fullmatch(text) else STR
    return _WORDS.get(text, STR)


def read_yaml(text: str, source: str, max_depth: int) -> Iterator[tuple[int, object]]:
    """Yields the documents of a stream with their numbers, counted from 1."""
    number = 1
    builder = _Builder(f"{source}, document 1", max_depth)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            if isinstance(event, events.DocumentEndEvent):
                yield number, builder.root
                number += 1
                builder = _Builder(f"{source}, document {number}", max_depth)
            elif isinstance(event, events.NodeEvent | events.CollectionEndEvent):
                builder.add(event)
    except yaml.YAMLError as error:
        raise InputError(f"{source}, document {number}{_line(error)}", [_problem(error)]) from None
    except UnicodeError as error:
        raise InputError(f"{source}, document {number}", [f"is not text: {error}"]) from None


def _line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    return f", line {mark.line + 1}" if mark else ""


def _problem(error: yaml.YAMLError) -> str:
    problem = getattr(error, "problem", None) or getattr(error, "reason", None)
    return f"is not YAML: {problem or error}"


class _OpenCollection:
    """A mapping or list that has not ended yet. ``size`` counts its values, with aliases expanded."""

    __slots__ = ("anchor", "key", "size", "value")

    def __init__(self, value: dict[str, object] | list[object], anchor: str | None) -> None:
        self.value = value
        self.anchor = anchor
        self.key: str | None = None
        self.size = 1


class _Builder:
    """Builds the dicts, lists and scalars of one document from its events."""

    def __init__(self, where: str, max_depth: int) -> None:
        self.where = where
        self.max_depth = max_depth
        self.root: object = None
        self.open: list[_OpenCollection] = []
        self.anchors: dict[str, tuple[object, int]] = {}

    def add(self, event: events.Event) -> None:
        kind = type(event)
        if kind is events.ScalarEvent:
            self._add_scalar(event)
        elif kind is events.MappingStartEvent or kind is events.SequenceStartEvent:
            self._begin(event)
        elif kind is events.AliasEvent:
            self._add_alias(event)
        else:
            self._end()

    def _add_scalar(self, event: Any) -> None:  # noqa: ANN401  PyYAML's events are not typed
        top = self.open[-1] if self.open else None
        if top and top.key is None and type(top.value) is dict:
            self._begin_entry(top, event)
            return
        tag = event.tag
        if tag is None:
            tag = tag_of(event.value) if event.implicit[0] else STR
        value = event.value if tag in (STR, "!") else self._scalar(event, tag)
        if event.anchor:
            self.anchors[event.anchor] = (value, 1)
        self._put(value, 1, event)

    def _begin_entry(self, mapping: _OpenCollection, event: Any) -> None:  # noqa: ANN401
        key = event.value
        if key == "<<" and event.implicit[0]:
            self._refuse(event, "merge keys (<<) are not supported: write the fields out")
        if key in mapping.value:
            self._refuse(event, f"the key {key!r} occurs twice in one mapping")
        mapping.key = key

    def _begin(self, event: Any) -> None:  # noqa: ANN401
        is_map = type(event) is events.MappingStartEvent
        if event.tag not in (None, "!", MAP if is_map else SEQ):
            self._refuse(event, f"the tag {event.tag!r} is not supported")
        if len(self.open) == self.max_depth:
            self._refuse(event, f"is nested more than {self.max_depth} levels deep")
        value: dict[str, object] | list[object] = {} if is_map else []
        self._put(value, 0, event)
        self.open.append(_OpenCollection(value, event.anchor))
        if event.anchor:
            self.anchors[event.anchor] = (value, 0)

    def _end(self) -> None:
        ended = self.open.pop()
        if ended.anchor:
            self.anchors[ended.anchor] = (ended.value, ended.size)
        if self.open:
            self.open[-1].size += ended.size

    def _add_alias(self, event: Any) -> None:  # noqa: ANN401
        if event.anchor not in self.anchors:
            self._refuse(event, f"the alias *{event.anchor} has no anchor")
        value, size = self.anchors[event.anchor]
        if not size:
            self._refuse(event, f"the alias *{event.anchor} would contain itself")
        self._put(value, size, event)
        if sum(collection.size for collection in self.open) > MAX_EXPANDED_VALUES:
            self._refuse(event, f"aliases expand to more than {MAX_EXPANDED_VALUES} values")

    def _put(self, value: object, size: int, event: events.Event) -> None:
        """Puts a value at the present position of the document."""
        if not self.open:
            self.root = value
            return
        top = self.open[-1]
        top.size += size
        if isinstance(top.value, list):
            top.value.append(value)
        elif top.key is None:
            self._refuse(event, "a key must be a string")
        else:
            top.value[top.key] = value
            top.key = None

    def _scalar(self, event: Any, tag: str) -> object:  # noqa: ANN401
        text, plain = event.value, tag_of(event.value)
        if tag == FLOAT and plain in (INT, FLOAT):
            number = float(text)
            return number if math.isfinite(number) else self._refuse(event, f"{text} is too large a number")
        if tag != plain:
            self._refuse(event, f"{text!r} is not a value of the tag {tag!r}")
        if tag == INT:
            return int(text, 0)
        return None if tag == NULL else text.lower() == "true"

    def _refuse(self, event: events.Event, rule: str) -> NoReturn:
        assert event.start_mark is not None
        raise InputError(f"{self.where}, line {event.start_mark.line + 1}", [rule])
