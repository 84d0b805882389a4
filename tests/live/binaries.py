"""Finds the programs of a control plane, and builds the ones that are missing.

``find`` looks in ``KUBEBUILDER_ASSETS``, then on ``PATH``, then in a cache outside the repository, and
builds what it did not find there into that cache. Whoever sets ``KUBEBUILDER_ASSETS`` chose those
programs and gets them whatever their version; one that merely happens to be on ``PATH`` must run and be
within one minor version of the pinned one, the skew that Kubernetes supports.

A build is made once per machine: a lock lets one process build while the others wait, and a program
appears in the cache by a rename, so nobody ever runs half of one. Whoever needs several programs asks for
them at once: those of one module are then built together. Nothing is skipped: where a program can be
neither found nor built, ``find`` raises and says what to install.

``python -m tests.live.binaries`` builds all of them ahead of time and prints where they are.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.live.build import MissingProgramError, build
from tests.live.progress import say
from tests.live.recipes import RECIPES, Module, Recipe

__all__ = ["MissingProgramError", "cache_directory", "find", "find_all"]

_VERSION = re.compile(r"\bv?(\d+)\.(\d+)\.\d+")


def find(name: str) -> Path:
    """The program called ``name``, built first if need be. Raises MissingProgramError if that fails."""
    return find_all([name])[name]


def find_all(names: Collection[str]) -> dict[str, Path]:
    """All these programs; what is missing is built, that of one module at once."""
    found = {name: path for name in names if (path := _found(name))}
    missing: dict[Module, list[str]] = {}
    for name in names:
        if name not in found:
            missing.setdefault(RECIPES[name].module, []).append(name)
    for module, together in missing.items():
        found |= _built(module, together)
    return found


def cache_directory() -> Path:
    """``$JOBTREE_CACHE/control-plane``; ``JOBTREE_CACHE`` is ``jobtree`` in the user's cache unless set."""
    user_cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("JOBTREE_CACHE") or Path(user_cache) / "jobtree") / "control-plane"


def _found(name: str) -> Path | None:
    return _from_assets(name) or _from_path(name) or _executable(_cached(name))


def _cached(name: str) -> Path:
    recipe = RECIPES[name]
    return cache_directory() / recipe.module.label / recipe.file_name(name)


def _executable(path: Path) -> Path | None:
    return path if path.is_file() and os.access(path, os.X_OK) else None


def _from_assets(name: str) -> Path | None:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    return _executable(Path(assets) / name) if assets else None


def _from_path(name: str) -> Path | None:
    recipe, found = RECIPES[name], shutil.which(name)
    if found is None or not recipe.tell_version:
        return None
    program = Path(found)
    version, pinned = _version_of(program, recipe), _minor_version(recipe.module.version)
    assert pinned is not None, f"{recipe.module.version} is not a version"
    if version is None or version[0] != pinned[0] or abs(version[1] - pinned[1]) > 1:
        told = "does not tell its version" if version is None else f"is version {version[0]}.{version[1]}"
        say(f"{program} {told}: not used, {pinned[0]}.{pinned[1]} is wanted")
        return None
    return program


def _version_of(program: Path, recipe: Recipe) -> tuple[int, int] | None:
    try:
        told = subprocess.run(
            [program, *recipe.tell_version], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return _minor_version(told.stdout + told.stderr)


def _minor_version(text: str) -> tuple[int, int] | None:
    match = _VERSION.search(text)
    return (int(match[1]), int(match[2])) if match else None


def _built(module: Module, names: list[str]) -> dict[str, Path]:
    """Builds these programs, except those that another process built while this one waited for the lock."""
    targets = {name: _cached(name) for name in names}
    directory = cache_directory() / module.label
    directory.mkdir(parents=True, exist_ok=True)
    with _lock(directory / ".lock"):
        missing = {name: target for name, target in targets.items() if _executable(target) is None}
        if missing:
            build(module, missing, directory)
    return targets


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """One process at a time. The kernel lets go of the lock of a process that died."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that is building {path.parent.name}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    for program in find_all(sys.argv[1:] or RECIPES).values():
        sys.stdout.write(f"{program}\n")
