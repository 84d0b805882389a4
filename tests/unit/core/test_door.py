"""The door of the core: every name that it offers is typed and can be loaded."""

import ast
from pathlib import Path

import pytest

import jobtree.core as door

NAMES = sorted(door._MODULES)


def typed_names() -> list[str]:
    """Names that the door imports for type checkers."""
    tree = ast.parse(Path(str(door.__file__)).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    return sorted(
        alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    )


def test_door_types_every_name_that_it_loads() -> None:
    assert typed_names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_door_loads_name(name: str) -> None:
    assert getattr(door, name) is not None


def test_door_refuses_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'planner'"):
        door.planner  # noqa: B018  the lookup is what fails
