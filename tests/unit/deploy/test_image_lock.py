"""The lock file of the image has the dependencies of the package, in the versions that were tested."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
SOURCE = REPOSITORY / "src" / "jobtree"
EXTRA = re.compile(r"^ *(from|import) (aiohttp|httptools|prometheus_client)\b", re.MULTILINE)
IMAGE = REPOSITORY / "deploy" / "image" / "requirements.lock"


def entries(lock: Path) -> dict[str, str]:
    """Returns the version and the hashes of each package in a lock file, without comments."""
    text = re.sub(r"^\s*#.*\n", "", lock.read_text(), flags=re.MULTILINE)
    text = re.sub(r" ; .* \\$", " \\\\", text, flags=re.MULTILINE)  # the versions of Python that need it
    return {entry.partition("==")[0]: entry for entry in re.split(r"\n(?=\S)", text.strip())}


def test_image_has_the_tested_versions() -> None:
    tested, image = entries(REPOSITORY / "requirements.lock"), entries(IMAGE)
    assert image.items() <= tested.items()
    assert len(image) < len(tested)
    assert all("--hash=sha256:" in entry for entry in image.values())


def test_image_has_all_dependencies_of_the_package() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["manager"]]
    dependencies = {re.split(r"[<>=~]", requirement)[0] for requirement in needed}
    assert dependencies <= entries(IMAGE).keys()


def test_only_the_manager_imports_what_its_extra_adds() -> None:
    """The library and the command line work without jobtree[manager]."""
    modules = [path for path in SOURCE.rglob("*.py") if EXTRA.search(path.read_text(encoding="utf-8"))]
    outside = {path.relative_to(SOURCE).as_posix() for path in modules if "manager" not in path.parts}
    assert len(modules) > len(outside)
    assert outside == {"kube/http/http_connection.py"}
    importers = [
        path for path in SOURCE.rglob("*.py") if "async_transport" in path.read_text(encoding="utf-8")
    ]
    assert {path.relative_to(SOURCE).parts[0] for path in importers} == {"manager"}


def test_manager_without_its_extra_says_what_to_install() -> None:
    start = "runpy.run_module('jobtree.manager', run_name='__main__')"
    program = f"import runpy, sys; sys.modules['aiohttp'] = None; {start}"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert process.stderr.startswith("error: aiohttp is not installed: ")
    assert "jobtree[manager]" in process.stderr
