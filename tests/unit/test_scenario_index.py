"""The page of scenarios lists every file of ``tests/scenarios`` once, with what it claims."""

import re

from tests.shown import REPOSITORY

PAGE = REPOSITORY / "docs" / "scenarios.md"
ROW = re.compile(r"^\| *(\d*) *\| (.+) \| \[(.+)\]\((.+)\) \|$", re.MULTILINE)
ROWS = ROW.findall(PAGE.read_text(encoding="utf-8"))
FILES = sorted((REPOSITORY / "tests" / "scenarios").glob("*.txt"))


def test_listed_scenario_exists() -> None:
    assert [link for *_, link in ROWS if (PAGE.parent / link).resolve() not in FILES] == []
    assert [(name, link) for *_, name, link in ROWS if not link.endswith(f"/{name}.txt")] == []


def test_scenario_is_listed_once_with_a_claim() -> None:
    assert sorted(name for *_, name, _ in ROWS) == [path.stem for path in FILES]
    assert [claim for _, claim, *_ in ROWS if not claim.endswith(".")] == []
