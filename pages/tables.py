"""Builds Markdown tables and reads the sentences about fields."""

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import yaml

SENTENCES = Path(__file__).with_name("sentences.yaml")


@cache
def field_sentences() -> dict[str, dict[str, str]]:
    """Returns the meaning of each field, by struct."""
    sentences: dict[str, dict[str, str]] = yaml.safe_load(SENTENCES.read_text(encoding="utf-8"))["fields"]
    return sentences


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Returns the lines of a table. A bar inside a cell is escaped, since it would end the cell."""
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines]
