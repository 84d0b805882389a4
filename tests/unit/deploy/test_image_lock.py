"""The lock file of the image has the dependencies of the package, in the versions that were tested."""

import re
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
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
    dependencies = {re.split(r"[<>=~]", requirement)[0] for requirement in project["dependencies"]}
    assert dependencies <= entries(IMAGE).keys()
