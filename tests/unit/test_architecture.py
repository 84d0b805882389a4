"""The core does no I/O and reads no clock, and the name of a class names one class.

The import contracts in pyproject.toml refuse modules. These tests refuse calls: built-ins that read or write,
imports by name, and methods that read the clock.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import jobtree

PACKAGE = Path(jobtree.__file__).parent
CORE = PACKAGE / "core"

FORBIDDEN_BUILTINS = {"__import__", "breakpoint", "compile", "eval", "exec", "input", "open", "print"}
FORBIDDEN_METHODS = {"now", "today", "utcnow"}
CLOCKS = {"date", "datetime"}


def offences(source: str) -> Iterator[str]:
    """Yields the forbidden calls of a module, with their lines."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=name), lineno=line) if name in FORBIDDEN_BUILTINS:
                yield f"line {line}: calls {name}()"
            case ast.Attribute(
                value=ast.Name(id=clock) | ast.Attribute(attr=clock), attr=method, lineno=line
            ):
                if clock in CLOCKS and method in FORBIDDEN_METHODS:
                    yield f"line {line}: reads the clock with {clock}.{method}"
            case ast.Import(names=names, lineno=line) if any(name.name == "importlib" for name in names):
                yield f"line {line}: imports by name"


@pytest.mark.parametrize(
    "path", [pytest.param(path, id=str(path.relative_to(CORE))) for path in sorted(CORE.rglob("*.py"))]
)
def test_core_module_does_no_io_and_reads_no_clock(path: Path) -> None:
    assert list(offences(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("print('hello')", ["line 1: calls print()"]),
        ("with open('x') as file:\n    pass", ["line 1: calls open()"]),
        ("\nclock = datetime.now", ["line 2: reads the clock with datetime.now"]),
        ("import datetime\ndatetime.datetime.utcnow()", ["line 2: reads the clock with datetime.utcnow"]),
        ("datetime.date.today()", ["line 1: reads the clock with date.today"]),
        ("import importlib", ["line 1: imports by name"]),
        ("now = world.now\nwindow.open()\nreopen()", []),
    ],
)
def test_forbidden_calls_are_reported(source: str, expected: list[str]) -> None:
    assert list(offences(source)) == expected


def test_class_name_is_defined_once() -> None:
    modules_by_class: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                modules_by_class.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    repeated = {name: modules for name, modules in modules_by_class.items() if len(modules) > 1}
    # To users of the library the object is the Run; jobtree.api defines its wire format.
    assert repeated == {"Run": ["api/kinds/run.py", "client/run.py"]}
