"""Writes the reference of the Python library from its docstrings and signatures."""

import inspect
import re
from collections.abc import Iterator

import msgspec

import jobtree
from jobtree.client.aio import AsyncRun
from jobtree.client.answers.fleet_rows import EnvelopeRow, ReservationRow
from jobtree.client.answers.lease_rows import LeaseRow
from jobtree.client.answers.rows import Rows
from jobtree.client.answers.timeline import Timeline
from jobtree.client.lottery.record_proof import Verification
from jobtree.client.plans.explanation import Explanation
from jobtree.client.plans.plan_result import PlanResult

INTRODUCTION = """\
# Python

`import jobtree`. The [guide](../user-guide/python.md) shows how to use it. Functions, classes and errors are
attributes of `jobtree`; answers and rows are what the functions return.
"""
FUNCTIONS = [name for name, module in jobtree.MODULES.items() if module == "client.library"]
CLASSES = (jobtree.Run, jobtree.ClusterClient, jobtree.SimulatedClusterClient)
ANSWERS = (PlanResult, Explanation, Rows, Timeline, Verification)
ROWS = (EnvelopeRow, ReservationRow, LeaseRow)
ERRORS = [name for name in jobtree.MODULES if name.endswith("Error")]


def page() -> str:
    """Returns the page in Markdown."""
    lines = [INTRODUCTION, "## Functions", ""]
    for name in FUNCTIONS:
        lines += function_lines(name, getattr(jobtree, name))
    for title, classes in (("Classes", CLASSES), ("Answers", ANSWERS)):
        lines += [f"## {title}", ""]
        for kind in classes:
            lines += class_lines(kind)
    lines += ["## Rows", ""]
    for row in ROWS:
        lines += [f"### {row.__name__}", "", text_of(row), "", *field_lines(row), ""]
    lines += ["## Awaiting", "", text_of(jobtree.aio), "", *class_lines(AsyncRun)]
    lines += ["## Errors", "", "| class | raised when | exit code |", "|---|---|---|", *error_rows()]
    return "\n".join(lines) + "\n"


def text_of(described: object) -> str:
    """Returns the docstring in Markdown."""
    return re.sub(r"``(.+?)``", r"`\1`", inspect.getdoc(described) or "").replace("::\n", ":\n")


def function_lines(name: str, function: object) -> list[str]:
    assert callable(function)
    return [f"### {name}", "", f"```python\n{name}{signature_of(function)}\n```", "", text_of(function), ""]


def signature_of(function: object) -> str:
    assert callable(function)
    signature = inspect.signature(function)
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for name, parameter in signature.parameters.items()
        if name not in {"self", "stop"}
    ]
    return str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


def class_lines(kind: type) -> Iterator[str]:
    yield from (f"### {kind.__name__}", "", text_of(kind), "")
    rows = [(name, member) for name, member in members(kind) if text_of(member)]
    if rows:
        yield from ("| | |", "|---|---|")
        yield from (f"| `{spelled(name, member)}` | {cell(text_of(member))} |" for name, member in rows)
    yield ""


def members(kind: type) -> Iterator[tuple[str, object]]:
    """Yields the public methods and properties that a class defines, in the order of its source."""
    for name, member in vars(kind).items():
        if not name.startswith("_") and name != "of":
            yield name, member.__func__ if isinstance(member, classmethod) else member


def spelled(name: str, member: object) -> str:
    if not inspect.isfunction(member):
        return name
    return f"{name}{signature_of(member)}".replace("(cls, ", "(").replace("|", "\\|")


def cell(text: str) -> str:
    return re.sub(r"\s*\n\s*", " ", text).replace("|", "\\|")


def field_lines(row: type[msgspec.Struct]) -> list[str]:
    return [f"`{'`, `'.join(field.name for field in msgspec.structs.fields(row))}`"]


def error_rows() -> Iterator[str]:
    for name in ERRORS:
        error = getattr(jobtree, name)
        yield f"| `{name}` | {cell(text_of(error))} | {error.exit_code} |"
