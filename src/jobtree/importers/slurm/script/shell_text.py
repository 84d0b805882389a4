"""Reads the shell syntax that batch scripts need: the words of a line, and here-documents."""

import re
from collections.abc import Iterator
from typing import NamedTuple

_HERE = re.compile(r"(?<!<)<<(?P<dash>-?)\s*(?P<quote>['\"\\]?)(?P<word>[A-Za-z_][A-Za-z0-9_]*)['\"]?")
_ESCAPED_IN_QUOTES = '"\\$`'


class ScriptLine(NamedTuple):
    """A line of a script: its number, its text, and whether it is inside a here-document."""

    number: int
    text: str
    quoted: bool


class HereDocument(NamedTuple):
    """The text of a here-document, the command that reads it, and the line number of that command."""

    number: int
    command: str
    literal: bool
    text: str


def words(text: str) -> list[str]:
    """The words of a line without quotes and comments. Raises ValueError."""
    complete: list[str] = []
    word: str | None = None
    at = 0
    while at < len(text):
        sign = text[at]
        if sign in " \t":
            if word is not None:
                complete.append(word)
            word = None
        elif sign == "#" and word is None:
            break
        elif sign in "'\"":
            inside, at = _quoted(text, at)
            word = (word or "") + inside
        else:
            if sign == "\\" and at + 1 < len(text):
                at += 1
                sign = text[at]
            word = (word or "") + sign
        at += 1
    return complete if word is None else [*complete, word]


def _quoted(text: str, at: int) -> tuple[str, int]:
    """The text between the quote at ``at`` and the next, and the position of the next."""
    quote, inside = text[at], ""
    at += 1
    while at < len(text) and text[at] != quote:
        if quote == '"' and text[at] == "\\" and text[at + 1 : at + 2] and text[at + 1] in _ESCAPED_IN_QUOTES:
            at += 1
        inside += text[at]
        at += 1
    if at >= len(text):
        raise ValueError(f"a quote ({quote}) is not closed")
    return inside, at


def script_lines(text: str) -> Iterator[ScriptLine]:
    """All lines of a script. The line that ends a here-document counts as a part of it."""
    ends: list[tuple[str, bool]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if ends:
            word, dash = ends[0]
            if (line.lstrip("\t") if dash else line) == word:
                ends.pop(0)
            yield ScriptLine(number, line, quoted=True)
            continue
        yield ScriptLine(number, line, quoted=False)
        if not line.lstrip().startswith("#"):
            ends = [(match["word"], bool(match["dash"])) for match in _HERE.finditer(line)]


def here_documents(text: str) -> Iterator[HereDocument]:
    """The here-documents of a script in order; of several on one line, the first."""
    opened: tuple[ScriptLine, re.Match[str]] | None = None
    lines: list[str] = []
    for line in script_lines(text):
        if not line.quoted:
            if opened:
                yield _here(opened, lines[:-1])
            match = None if line.text.lstrip().startswith("#") else _HERE.search(line.text)
            opened, lines = (line, match) if match else None, []
        else:
            lines.append(line.text)
    if opened:
        ended = lines and lines[-1].strip() == opened[1]["word"]
        yield _here(opened, lines[:-1] if ended else lines)


def _here(opened: tuple[ScriptLine, re.Match[str]], lines: list[str]) -> HereDocument:
    line, match = opened
    kept = [text.lstrip("\t") for text in lines] if match["dash"] else lines
    return HereDocument(line.number, line.text, bool(match["quote"]), "".join(f"{text}\n" for text in kept))
