"""``import jobtree`` takes no time, and loads nothing that a notebook does not need."""

import subprocess
import sys

import pytest

import jobtree

PROBE = "import sys; {}; print(*sys.modules)"


def loaded_by(statements: str) -> set[str]:
    process = subprocess.run(
        [sys.executable, "-c", PROBE.format(statements)], capture_output=True, text=True, check=True
    )
    return set(process.stdout.split())


def test_import_loads_no_module_besides_the_package() -> None:
    ours = {module for module in loaded_by("import jobtree") if module.startswith("jobtree")}
    assert ours == {"jobtree"}
    assert loaded_by("import jobtree") & {"msgspec", "yaml", "click", "asyncio", "cryptography"} == set()


@pytest.mark.parametrize("statements", ["import jobtree; jobtree.Run", "import jobtree; jobtree.cluster"])
def test_library_loads_nothing_of_the_manager_or_the_command_line(statements: str) -> None:
    unwanted = {
        "aiohttp",
        "httptools",
        "prometheus_client",
        "click",
        "pandas",
        "jobtree.manager",
        "jobtree.cli",
    }
    assert loaded_by(statements) & unwanted == set()


def test_every_public_name_exists_and_has_a_docstring() -> None:
    for name in (*jobtree.MODULES, "aio"):
        assert getattr(jobtree, name).__doc__, name
        assert name in dir(jobtree)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = jobtree.nothing  # type: ignore[attr-defined]


def test_every_error_is_a_jobtree_error_with_an_exit_code() -> None:
    names = [name for name in jobtree.MODULES if name.endswith("Error")]
    assert len(names) > 10
    for name in names:
        assert issubclass(getattr(jobtree, name), jobtree.JobtreeError)
        assert getattr(jobtree, name).exit_code in {1, 2, 3, 4, 74}
