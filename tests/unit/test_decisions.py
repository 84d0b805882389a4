"""Each decision is found by its subject: in its file name, in its title and in the index."""

import re
from datetime import date
from pathlib import Path

import pytest

from tests.shown import REPOSITORY

DIRECTORY = REPOSITORY / "docs" / "decisions"
INDEX = DIRECTORY / "README.md"
DECISIONS = sorted(path for path in DIRECTORY.glob("*.md") if path != INDEX)
MAX_TITLE = 72
MAX_LINES = 60

each_decision = pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in DECISIONS])


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def title_of(path: Path) -> str:
    return lines_of(path)[0].removeprefix("# ")


@each_decision
def test_decision_file_name_is_a_date_and_a_subject(path: Path) -> None:
    name = re.fullmatch(r"(\d{4}-\d{2}-\d{2})-([a-z0-9]+(?:-[a-z0-9]+)+)", path.stem)
    assert name is not None
    date.fromisoformat(name[1])


@each_decision
def test_decision_title_names_its_subject_and_fits(path: Path) -> None:
    assert lines_of(path)[0].startswith("# ")
    subject, colon, decided = title_of(path).partition(": ")
    assert subject[0].isupper()
    assert colon
    assert decided
    assert len(title_of(path)) <= MAX_TITLE
    assert not title_of(path).endswith(".")


@each_decision
def test_decision_is_short(path: Path) -> None:
    assert len(lines_of(path)) <= MAX_LINES


def test_no_two_decisions_have_the_same_title_or_subject() -> None:
    titles = [title_of(path).lower() for path in DECISIONS]
    subjects = [path.stem[len("2026-11-15-") :] for path in DECISIONS]
    assert sorted(set(titles)) == sorted(titles)
    assert sorted(set(subjects)) == sorted(subjects)
