r"""Runs every example of the Python guide and of the sample notebooks, and compares what they print.

The ```python blocks of the guide are one program, in a directory of its own; each prints what the ```text
block after it shows. A cell of a notebook has its text output in the file.
"""

import json
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from pages import python
from tests.unit.cli.cli_runner import terminal

REPOSITORY = Path(__file__).parents[2]
GUIDE = REPOSITORY / "docs" / "user-guide" / "python.md"
NOTEBOOKS = sorted((REPOSITORY / "config" / "samples" / "notebooks").glob("*.ipynb"))
STEP = re.compile(r"```python\n(?P<code>.*?)```\n(?:\n```text\n(?P<out>.*?)```)?", re.DOTALL)


@pytest.fixture(autouse=True)
def _place(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    with terminal(110):
        monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))  # the lottery key is created there
        yield


def printed(code: str, names: dict[str, Any]) -> str:
    with redirect_stdout(StringIO()) as out:
        exec(compile(code, "example", "exec"), names)  # noqa: S102  our own examples
    return out.getvalue()


def test_examples_of_the_guide_print_what_it_shows() -> None:
    names: dict[str, Any] = {}
    steps = list(STEP.finditer(GUIDE.read_text(encoding="utf-8")))
    assert len(steps) > 5
    for step in steps:
        assert printed(step["code"], names) == (step["out"] or ""), step["code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells_of_a_notebook_print_what_it_shows(path: Path) -> None:
    names: dict[str, Any] = {}
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["metadata"]["language_info"]["name"]) == (4, "python")
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 5
    for cell in cells:
        shown = "".join(text for output in cell["outputs"] for text in output["text"])
        assert printed("".join(cell["source"]), names) == shown, cell["source"]


def test_reference_has_every_public_name_with_its_text() -> None:
    text = python.page()
    for name in ("### cluster", "### Run", "### ClusterClient", "### PlanResult", "| `WaitTimeoutError` |"):
        assert name in text
    assert "wait(until='Running', timeout=None)" in text
    assert "``" not in text.replace("```", "")
