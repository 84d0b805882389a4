"""The chart and the plugin are not published with placeholder addresses."""

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
ADDRESSES = {
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


def test_script_fails_and_lists_placeholders(addresses: ModuleType) -> None:
    process = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=False)
    placeholders = addresses.remaining_placeholders(SCRIPT.parent)
    assert process.returncode == (1 if placeholders else 0)
    for line in placeholders:
        assert f"deploy/{line}\n" in process.stderr


def test_script_replaces_all_placeholders(
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
    arguments = [argument for pair in ADDRESSES.items() for argument in pair]
    assert addresses.main(arguments, copy) == 0
    assert "jobtree.invalid" not in "".join(path.read_text() for path in addresses.files(copy))
    assert yaml.safe_load(chart.read_text())["sources"] == [ADDRESSES["--home"]]


def test_manifests_use_images_of_jobtree_only() -> None:
    """A cluster pulls the image of Jobtree and no other."""
    for path in sorted((SCRIPT.parent / "kustomize").rglob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            images = [line for line in yaml.safe_dump(document).splitlines() if " image: " in line]
            assert all("jobtree" in line for line in images), path


def test_chart_is_packed_only_after_the_check() -> None:
    rule = (REPOSITORY / "Makefile").read_text().partition("\nchart:")[2].partition("\n\n")[0]
    assert rule.splitlines()[1].strip() == "$(BIN)/python deploy/addresses.py"
