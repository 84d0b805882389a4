"""Addresses that nobody has set up are placeholders, and are not published."""

import shutil
import subprocess
import sys
from importlib import util
from pathlib import Path
from types import ModuleType

import pytest
import yaml

REPOSITORY = Path(__file__).parents[3]
SCRIPT = REPOSITORY / "deploy" / "addresses.py"
FILLED = {
    "--image": "registry.example/team/jobtree",
    "--home": "https://docs.example/jobtree",
    "--releases": "https://files.example/jobtree",
}


@pytest.fixture(scope="module")
def addresses() -> ModuleType:
    spec = util.spec_from_file_location("addresses", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_unfilled_is_refused_and_named(addresses: ModuleType) -> None:
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=False)
    left = addresses.unfilled(SCRIPT.parent)
    assert done.returncode == (1 if left else 0)
    for one in left:
        assert f"deploy/{one}\n" in done.stderr


def test_filled_in_nothing_is_left_and_everything_names_the_same(
    addresses: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "deploy"
    shutil.copytree(SCRIPT.parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    chart = copy / "helm" / "gpu-fleet" / "Chart.yaml"
    chart.write_text(chart.read_text() + "sources: [https://home.jobtree.invalid]\n")
    assert addresses.main([], copy) == 1
    assert "python deploy/addresses.py --home …" in capsys.readouterr().err.replace(" --image …", "").replace(
        " --releases …", ""
    )
    words = [word for pair in FILLED.items() for word in pair]
    assert addresses.main(words, copy) == 0
    assert "jobtree.invalid" not in "".join(path.read_text() for path in addresses.files(copy))
    assert yaml.safe_load(chart.read_text())["sources"] == [FILLED["--home"]]


def test_no_other_address_stands_in_what_is_installed() -> None:
    """Images come from one place, which an administrator can change; nothing else is fetched."""
    for path in sorted((SCRIPT.parent / "kustomize").rglob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            images = [line for line in yaml.safe_dump(document).splitlines() if " image: " in line]
            assert all("jobtree" in line for line in images), path


def test_the_chart_is_not_packed_before() -> None:
    rule = (REPOSITORY / "Makefile").read_text().partition("\nchart:")[2].partition("\n\n")[0]
    assert rule.splitlines()[1].strip() == "$(BIN)/python deploy/addresses.py"
