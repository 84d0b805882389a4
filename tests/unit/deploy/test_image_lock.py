"""The image's dependencies: the package's, at the versions and hashes that everything was tested with."""

import re
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
IMAGE = REPOSITORY / "deploy" / "image" / "requirements.lock"


def entries(lock: Path) -> dict[str, str]:
    """Each package of a lock: its version and its hashes, without the remarks."""
    text = re.sub(r"^\s*#.*\n", "", lock.read_text(), flags=re.MULTILINE)
    text = re.sub(r" ; .* \\$", " \\\\", text, flags=re.MULTILINE)  # the Pythons for which it is needed
    return {entry.partition("==")[0]: entry for entry in re.split(r"\n(?=\S)", text.strip())}


def test_the_image_has_what_was_tested() -> None:
    tested, image = entries(REPOSITORY / "requirements.lock"), entries(IMAGE)
    assert image.items() <= tested.items()
    assert len(image) < len(tested)
    assert all("--hash=sha256:" in entry for entry in image.values())


def test_the_image_has_all_that_the_package_needs() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[<>=~]", one)[0] for one in project["dependencies"]}
    assert needed <= entries(IMAGE).keys()
