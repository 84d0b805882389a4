"""A Run changes by its own methods: no other module assigns its attributes or edits its collections."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobtree.core.runs.run_state import RunState
from jobtree.core.runs.run_usage import RunUsage

SRC = Path(__file__).parents[4] / "src/jobtree"
ATTRIBUTES = {*RunState.__slots__, *RunUsage.__slots__}
OWN_MODULES = {"run_state.py", "run_usage.py"}
EDITING_METHODS = {
    "add",
    "append",
    "clear",
    "discard",
    "extend",
    "pop",
    "popitem",
    "remove",
    "setdefault",
    "update",
}
# Receivers that are no Run but have attributes of the same names.
OTHER_OBJECTS = {"self", "envelope", "flavor", "ledger", "budgets", "work", "_changes"}


def written_attributes(code: str) -> Iterator[str]:
    """Yields each attribute of a Run that the code assigns or edits, as it is written there."""
    for node in ast.walk(ast.parse(code)):
        for target in written_expressions(node):
            attribute = target.value if isinstance(target, ast.Subscript) else target
            if (
                isinstance(attribute, ast.Attribute)
                and attribute.attr in ATTRIBUTES
                and last_name(attribute.value) not in OTHER_OBJECTS
            ):
                yield ast.unparse(attribute)


def last_name(expression: ast.expr) -> str:
    """Returns what an expression is called: `flavor` of `self.fleet.flavor(name)`, `runs` of `runs[key]`."""
    match expression:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=inner) | ast.Subscript(value=inner):
            return last_name(inner)
    return ""


def written_expressions(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            for target in targets:
                yield from target.elts if isinstance(target, ast.Tuple | ast.List) else (target,)
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            yield target
        case ast.Call(func=ast.Attribute(value=value, attr=method)) if method in EDITING_METHODS:
            yield value


@pytest.mark.parametrize(
    "code",
    [
        "run.phase = 'Running'",
        "run.since, run.pod_size = None, 0",
        "entry.run.attempt += 1",
        "world.runs[key].verdict = verdict",
        "run.leases[lease.name] = lease",
        "del run.leases[name]",
        "run.rank_losses.clear()",
        "run.usage.closed_charge += charge",
    ],
)
def test_scan_finds_writes_to_a_run(code: str) -> None:
    assert list(written_attributes(code))


def test_scan_ignores_reads_and_methods_of_a_run() -> None:
    assert not list(
        written_attributes("phase = run.phase\nrun.start(at, 8, provisional=False)\nx = run.leases.get(k)")
    )


@pytest.mark.parametrize("room", ["core", "snapshot", "simulation", "manager", "messages", "cli"])
def test_no_other_module_writes_to_a_run(room: str) -> None:
    writes = {
        str(path.relative_to(SRC)): attributes
        for path in sorted((SRC / room).rglob("*.py"))
        if path.name not in OWN_MODULES and (attributes := list(written_attributes(path.read_text())))
    }
    assert writes == {}
