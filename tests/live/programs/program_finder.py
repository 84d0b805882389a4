"""Finds the programs of a control plane, and builds those that are missing.

``find_programs`` looks in ``KUBEBUILDER_ASSETS``, then on ``PATH``, then in a cache outside the repository,
and builds missing programs into that cache. A program in ``KUBEBUILDER_ASSETS`` may have any version. One on
``PATH`` must run and be within one minor version of the pinned one, the skew that Kubernetes supports.

Each program is built once per machine: one process builds while others wait for a lock, and a rename puts the
finished program into the cache. Missing programs of one module are built together. If a program can be
neither found nor built, ``find_programs`` raises an error that says what to install; no test is skipped.

``python -m tests.live.programs.program_finder`` builds all programs ahead of time and prints their paths.
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

from tests.live.programs.build_recipes import RECIPES, Module, Recipe
from tests.live.programs.go_build import MissingProgramError, build
from tests.live.programs.long_command import report_progress

__all__ = ["MissingProgramError", "cache_directory", "find_program", "find_programs"]

_VERSION = re.compile(r"\bv?(\d+)\.(\d+)\.\d+")


def find_program(name: str) -> Path:
    """Returns the path of a program, after building it if it is missing. Raises MissingProgramError."""
    return find_programs([name])[name]


def find_programs(names: Collection[str]) -> dict[str, Path]:
    """Returns the paths of programs, after building the missing ones. Raises MissingProgramError."""
    paths = {name: path for name in names if (path := _existing(name))}
    missing: dict[Module, list[str]] = {}
    for name in names:
        if name not in paths:
            missing.setdefault(RECIPES[name].module, []).append(name)
    for module, module_names in missing.items():
        paths |= _built(module, module_names)
    return paths


def cache_directory() -> Path:
    """Returns ``$JOBTREE_CACHE/control-plane``, by default ``~/.cache/jobtree/control-plane``."""
    user_cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("JOBTREE_CACHE") or Path(user_cache) / "jobtree") / "control-plane"


def _existing(name: str) -> Path | None:
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
    recipe, path = RECIPES[name], shutil.which(name)
    if path is None or not recipe.version_arguments:
        return None
    program = Path(path)
    version, pinned = _version_of(program, recipe), _minor_version(recipe.module.version)
    assert pinned is not None, f"{recipe.module.version} is not a version"
    if version is None or version[0] != pinned[0] or abs(version[1] - pinned[1]) > 1:
        problem = "does not print its version" if version is None else f"is version {version[0]}.{version[1]}"
        report_progress(f"{program} {problem}: not used, because {pinned[0]}.{pinned[1]} is needed")
        return None
    return program


def _version_of(program: Path, recipe: Recipe) -> tuple[int, int] | None:
    try:
        result = subprocess.run(
            [program, *recipe.version_arguments], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return _minor_version(result.stdout + result.stderr)


def _minor_version(text: str) -> tuple[int, int] | None:
    match = _VERSION.search(text)
    return (int(match[1]), int(match[2])) if match else None


def _built(module: Module, names: list[str]) -> dict[str, Path]:
    """Builds these programs, unless another process built them while this one waited for the lock."""
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
    """Holds a lock of this machine. The kernel releases the lock of a process that ends."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report_progress(f"waiting for another process that is building {path.parent.name}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    for program in find_programs(sys.argv[1:] or RECIPES).values():
        sys.stdout.write(f"{program}\n")
