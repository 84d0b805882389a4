"""Writes YAML that every reader understands alike: block style, keys in the given order, no anchors.

A string is written without quotes only if it is a string in both YAML 1.1 and 1.2: it begins with a letter or
a slash, is not a boolean word, and has no special characters. Times, decimals, digests and everything else
that begins with a digit are quoted. Text of several lines becomes a literal block.
"""

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

_BARE: Final = re.compile(r"[A-Za-z/_](?:[A-Za-z0-9 _./@%+=(),;<>*'#:×≤→-]*[A-Za-z0-9_./@%+=(),;*'×-])?")
_SPECIAL: Final = re.compile(r": | #")
_WORDS: Final = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf"})
_BLOCK: Final = re.compile(r"[!-~\xa1-\u1fff](?:[\n -~\xa0-\u2027\u2030-\ud7ff]*[!-~\xa1-\u1fff])?\n?")
_UNPRINTABLE: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def dump_yaml(documents: Iterable[Mapping[str, object]]) -> str:
    """Returns a YAML stream of the documents."""
    lines: list[str] = []
    for document in documents:
        if lines:
            lines.append("---")
        if document:
            _write_mapping(lines, document, "", "")
        else:
            lines.append("{}")
    lines.append("")
    return "\n".join(lines)


def _write_mapping(lines: list[str], mapping: Mapping[str, object], head: str, indent: str) -> None:
    """Appends the lines of a mapping; ``head`` is written before the first key (``- `` in a list)."""
    for key, item in mapping.items():
        _write_item(lines, item, f"{head}{_text(key)}:", indent)
        head = indent


def _write_item(lines: list[str], item: object, head: str, indent: str) -> None:
    """Appends a value after its key. The items of a list are not indented further, as in kubectl's output."""
    if isinstance(item, str):
        lines.append(f"{head} {_string(item, indent)}")
    elif isinstance(item, Mapping) and item:
        lines.append(head)
        _write_mapping(lines, item, indent + "  ", indent + "  ")
    elif isinstance(item, (list, tuple)) and item:
        lines.append(head)
        _write_list(lines, item, indent)
    else:
        lines.append(f"{head} {_plain(item)}")


def _write_list(lines: list[str], items: list[object] | tuple[object, ...], indent: str) -> None:
    for item in items:
        if isinstance(item, Mapping) and item:
            _write_mapping(lines, item, indent + "- ", indent + "  ")
        elif isinstance(item, (list, tuple)) and item:
            lines.append(indent + "-")
            _write_list(lines, item, indent + "  ")
        elif isinstance(item, str):
            lines.append(f"{indent}- {_string(item, indent)}")
        else:
            lines.append(f"{indent}- {_plain(item)}")


def _plain(value: object) -> str:
    return json.dumps(value, allow_nan=False)


def _string(text: str, indent: str) -> str:
    if "\n" not in text or not _BLOCK.fullmatch(text):
        return _text(text)
    head = "|" if text.endswith("\n") else "|-"
    lines = text.removesuffix("\n").split("\n")
    return "\n".join([head, *(f"{indent}  {line}" if line else "" for line in lines)])


@lru_cache(maxsize=16_384)
def _text(text: str) -> str:
    if _BARE.fullmatch(text) and not _SPECIAL.search(text) and text.lower() not in _WORDS:
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", quoted)
