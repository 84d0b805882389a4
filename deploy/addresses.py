#!/usr/bin/env python3
"""Sets the addresses at which image, chart and plugin are published, and checks that all are set.

The repository has placeholders, whose host ``….jobtree.invalid`` can never exist. ``python
deploy/addresses.py`` lists the placeholders that are left and fails if there are any; ``make chart`` runs it
first. ``python deploy/addresses.py --image REGISTRY/NAME --home URL --releases URL`` replaces them: the name
of the image, the home page, and the address below which krew finds ``VERSION/ARCHIVE``.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
PLACEHOLDERS = {
    "image": "registry.jobtree.invalid/jobtree",
    "home": "https://home.jobtree.invalid",
    "releases": "https://releases.jobtree.invalid",
}
SUFFIXES = {".py", ".yaml", ".tpl", ".json", ".txt"}


def files(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path.suffix in SUFFIXES and path.name != Path(__file__).name:
            yield path


def remaining_placeholders(directory: Path) -> list[str]:
    """Returns ``FILE:LINE: NAME`` of every placeholder."""
    return [
        f"{path.relative_to(directory)}:{number}: {name}"
        for path in files(directory)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for name, placeholder in PLACEHOLDERS.items()
        if placeholder in line
    ]


def replace_placeholders(directory: Path, addresses: dict[str, str]) -> None:
    for path in files(directory):
        text = before = path.read_text(encoding="utf-8")
        for name, address in addresses.items():
            text = text.replace(PLACEHOLDERS[name], address)
        if text != before:
            path.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str], directory: Path = HERE) -> int:
    parser = argparse.ArgumentParser(
        prog="deploy/addresses.py", description="Sets the addresses at which Jobtree is published."
    )
    parser.add_argument("--image", help="registry and name of the image, without a tag")
    parser.add_argument("--home", help="URL of the home page")
    parser.add_argument("--releases", help="URL below which krew finds VERSION/ARCHIVE")
    options = vars(parser.parse_args(arguments))
    replace_placeholders(directory, {name: value for name, value in options.items() if value is not None})
    placeholders = remaining_placeholders(directory)
    if not placeholders:
        return 0
    missing = sorted({line.rpartition(" ")[2] for line in placeholders})
    sys.stderr.write("".join(f"{directory.name}/{line}\n" for line in placeholders))
    command = " ".join(["python deploy/addresses.py", *(f"--{name} …" for name in missing)])
    sys.stderr.write(f"error: these addresses are placeholders; set them first: {command}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
