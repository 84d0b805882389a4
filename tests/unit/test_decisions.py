"""Each decision is found by its subject: in its file name, in its title and in the index.

``docs/decisions/README.md`` is the index. An entry is ``- DATE [TITLE](FILE)`` below a subject. A decision
that changes another one has a mark at its top, ``- Amends [TITLE](FILE): …``. The changed decision has the
opposite mark, and the index repeats that mark below its entry.
"""

import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.shown import REPOSITORY

DIRECTORY = REPOSITORY / "docs" / "decisions"
INDEX = DIRECTORY / "README.md"
DECISIONS = sorted(path for path in DIRECTORY.glob("*.md") if path != INDEX)
MAX_TITLE = 72
MAX_LINES = 60
OPPOSITES = {"Amends": "Amended by", "Supersedes": "Superseded by"}
OPPOSITES |= {opposite: mark for mark, opposite in OPPOSITES.items()}
ENTRY = re.compile(r"- (\S+) \[(.+)\]\((\S+)\)")
MARK = re.compile(r" *- (Amend\w+(?: by)?|Supersede\w*(?: by)?) \[(.+)\]\((\S+)\).*")

each_decision = pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in DECISIONS])


class Mark(NamedTuple):
    decision: str  # the file that has the mark
    kind: str
    target: str  # the file that the mark names
    title: str


class Entry(NamedTuple):
    subject: str
    date: str
    title: str
    file: str


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def title_of(path: Path) -> str:
    return lines_of(path)[0].removeprefix("# ")


def marks_of(path: Path) -> Iterator[Mark]:
    """Yields the marks between the title of a decision and its date."""
    for line in lines_of(path)[1:]:
        if line.startswith("Decided on "):
            return
        if line:
            mark = MARK.fullmatch(line)
            assert mark is not None, f"{path.name}: not a mark: {line}"
            yield Mark(path.name, mark[1], mark[3], mark[2])


def index_entries() -> list[Entry]:
    """Returns the entries of the index, each with the subject that it stands below."""
    entries, subject = [], ""
    for line in lines_of(INDEX):
        if line.startswith("## "):
            subject = line.removeprefix("## ")
        elif subject and (entry := ENTRY.fullmatch(line)):
            entries.append(Entry(subject, entry[1], entry[2], entry[3]))
    return entries


def index_marks() -> list[Mark]:
    """Returns the marks in the index, each as a mark of the entry that it stands below."""
    marks, decision = [], ""
    for line in lines_of(INDEX):
        if entry := ENTRY.fullmatch(line):
            decision = entry[3]
        elif decision and (mark := MARK.fullmatch(line)):
            marks.append(Mark(decision, mark[1], mark[3], mark[2]))
    return marks


@each_decision
def test_decision_file_name_is_a_date_and_a_subject(path: Path) -> None:
    name = re.fullmatch(r"(\d{4}-\d{2}-\d{2})-([a-z0-9]+(?:-[a-z0-9]+)+)", path.stem)
    assert name is not None
    date.fromisoformat(name[1])


@each_decision
def test_decision_says_the_date_of_its_file_name(path: Path) -> None:
    assert f"Decided on {path.name[:10]}." in lines_of(path)


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


def test_index_lists_every_decision_once() -> None:
    assert sorted(entry.file for entry in index_entries()) == [path.name for path in DECISIONS]


def test_index_has_the_title_and_date_of_each_decision() -> None:
    expected = {path.name: (path.name[:10], title_of(path)) for path in DECISIONS}
    assert {entry.file: (entry.date, entry.title) for entry in index_entries()} == expected


def test_index_has_one_heading_per_subject_and_no_empty_one() -> None:
    headings = [line.removeprefix("## ") for line in lines_of(INDEX) if line.startswith("## ")]
    assert headings == list(dict.fromkeys(entry.subject for entry in index_entries()))


@each_decision
def test_decision_marks_name_the_title_and_file_of_another_decision(path: Path) -> None:
    for mark in marks_of(path):
        assert mark.kind in OPPOSITES
        assert DIRECTORY / mark.target in DECISIONS
        assert mark.target != path.name
        assert mark.title == title_of(DIRECTORY / mark.target)


def test_changed_and_changing_decisions_name_each_other() -> None:
    pairs = {(mark.decision, mark.kind, mark.target) for path in DECISIONS for mark in marks_of(path)}
    assert pairs == {(target, OPPOSITES[kind], decision) for decision, kind, target in pairs}


@each_decision
def test_decision_is_changed_only_by_one_that_is_not_older(path: Path) -> None:
    for mark in marks_of(path):
        old, new = path.name[:10], mark.target[:10]
        if mark.kind in {"Amends", "Supersedes"}:
            old, new = new, old
        assert old <= new


def test_index_marks_every_changed_decision() -> None:
    changed = [mark for path in DECISIONS for mark in marks_of(path) if mark.kind.endswith(" by")]
    assert sorted(index_marks()) == sorted(changed)
