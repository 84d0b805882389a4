"""The importers use the API and no clusters, files or clocks."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import jobtree.importers

ROOM = Path(jobtree.importers.__file__).parent
OUTSIDE = {
    "os",
    "sys",
    "pathlib",
    "subprocess",
    "time",
    "random",
    "tempfile",
    "shutil",
    "socket",
    "logging",
    "click",
}


def imported(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


@pytest.mark.parametrize(
    "path", [pytest.param(path, id=str(path.relative_to(ROOM))) for path in sorted(ROOM.rglob("*.py"))]
)
def test_importers_import_only_the_api(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    modules = set(imported(source))
    ours = {module for module in modules if module.startswith("jobtree.")}
    assert {
        module for module in ours if not module.startswith(("jobtree.api.", "jobtree.importers."))
    } == set()
    assert {module.partition(".")[0] for module in modules} & OUTSIDE == set()
    assert "open(" not in source
    assert "datetime.now" not in source
