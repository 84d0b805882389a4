#!/usr/bin/env python3
"""Where Jobtree is published: for whoever publishes it to fill in.

Until then every address in ``deploy`` is a placeholder whose host, ``….jobtree.invalid``, can never exist.
``python deploy/addresses.py`` says which ones are left and refuses if there are any; ``make chart`` asks it
first. ``python deploy/addresses.py --image REGISTRY/NAME --home URL --releases URL`` fills them in: where the
image is pulled from, where people read about it, and the address below which krew finds ``VERSION/ARCHIVE``.
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


def unfilled(directory: Path) -> list[str]:
    """``FILE:LINE: NAME`` of every placeholder that is left."""
    return [
        f"{path.relative_to(directory)}:{number}: {name}"
        for path in files(directory)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for name, placeholder in PLACEHOLDERS.items()
        if placeholder in line
    ]


def fill(directory: Path, given: dict[str, str]) -> None:
    for path in files(directory):
        text = before = path.read_text(encoding="utf-8")
        for name, address in given.items():
            text = text.replace(PLACEHOLDERS[name], address)
        if text != before:
            path.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str], directory: Path = HERE) -> int:
    parser = argparse.ArgumentParser(prog="deploy/addresses.py", description="Where Jobtree is published.")
    parser.add_argument("--image", help="registry and name of the image, without a tag")
    parser.add_argument("--home", help="where people read about it")
    parser.add_argument("--releases", help="below which krew finds VERSION/ARCHIVE")
    given = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value is not None}
    fill(directory, given)
    left = unfilled(directory)
    if not left:
        return 0
    missing = sorted({line.rpartition(" ")[2] for line in left})
    sys.stderr.write("".join(f"{directory.name}/{line}\n" for line in left))
    options = " ".join(f"--{name} …" for name in missing)
    sys.stderr.write(
        f"error: nobody has said where this is published: python deploy/addresses.py {options}\n"
    )
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
