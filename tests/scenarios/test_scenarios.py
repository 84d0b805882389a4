"""Each file in this directory is a claim about kubectl runs; runner.py explains how to read one."""

import importlib
from pathlib import Path

import pytest

from tests.scenarios.runner import Main, difference, parse, run

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent


@pytest.fixture(name="main", scope="session")
def _main() -> Main:
    main: Main = importlib.import_module("jobtree.cli.main").main
    return main


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in sorted(HERE.glob("*.txt"))])
def test_scenario(path: Path, main: Main, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    expected = parse(path.read_text(encoding="utf-8"))
    observed = run(expected, main=main, directory=tmp_path, repository=REPOSITORY)
    if request.config.getoption("--rewrite"):
        path.write_text(observed.render(), encoding="utf-8")
    elif changes := difference(expected, observed, path.name):
        pytest.fail(f"{changes}\nIf this is right: make scenarios-rewrite, and review.", pytrace=False)
