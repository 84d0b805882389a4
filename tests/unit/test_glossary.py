"""Each word of the glossary has one entry, and each entry says what the word means."""

import re

from tests.shown import REPOSITORY

TEXT = (REPOSITORY / "docs" / "glossary.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith("| word ")
]


def test_word_has_one_entry() -> None:
    words = [word for word, *_ in ROWS]
    assert len(words) > 100
    assert sorted(set(words)) == sorted(words)


def test_entry_has_a_word_a_sentence_and_a_place() -> None:
    assert [row for row in ROWS if len(row) != 3 or not row[0] or not re.search(r"\.$", row[1])] == []
