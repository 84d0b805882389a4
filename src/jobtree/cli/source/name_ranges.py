"""Expands the ranges of names that commands print: ``gpu-a-[01-16]``, ``a01-a08, c02``."""

import re
from collections.abc import Container, Iterable, Iterator

BRACKETS = re.compile(r"(?P<stem>.*)\[(?P<first>\d+)-(?P<last>\d+)\](?P<rest>.*)")
PAIR = re.compile(r"(?P<stem>.*?\D)(?P<first>\d+)-(?P=stem)(?P<last>\d+)(?P<rest>)")
MOST = 100_000  # names in one range


def expanded(words: Iterable[str], names: Container[str]) -> list[str]:
    """Returns the names that these words mean, once each; a word that is a name itself means that name."""
    found: dict[str, None] = {}
    for word in words:
        for part in [word] if word in names else word.replace(" ", "").split(","):
            found.update(dict.fromkeys(expand(part, names)))
    return list(found)


def expand(word: str, names: Container[str]) -> Iterator[str]:
    parts = None if word in names else BRACKETS.fullmatch(word) or PAIR.fullmatch(word)
    if parts is None:
        yield word
        return
    first, last = int(parts["first"]), int(parts["last"])
    for number in range(first, min(last, first + MOST) + 1):
        yield f"{parts['stem']}{number:0{len(parts['first'])}d}{parts['rest']}"
