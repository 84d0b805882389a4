"""Finds the programs of a control plane, and builds the ones that are missing.

``find`` looks in ``KUBEBUILDER_ASSETS``, then on ``PATH``, then in a cache outside the repository, and
builds what it did not find there into that cache. Whoever sets ``KUBEBUILDER_ASSETS`` chose those
programs and gets them whatever their version; one that merely happens to be on ``PATH`` must run and be
within one minor version of the pinned one, the skew that Kubernetes supports.

A build is made once per machine: a lock lets one process build while the others wait, and a program
appears in the cache by a rename, so nobody ever runs half of one. Nothing is skipped: where a program
can be neither found nor built, ``find`` raises and says what to install.

``python -m tests.live.binaries`` builds all of them ahead of time and prints where they are.
"""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.live.recipes import GO_VERSION, RECIPES, Module, Recipe, wrapper_go_mod

PROGRESS_SECONDS = 15
_VERSION = re.compile(r"\bv?(\d+)\.(\d+)\.\d+")


class MissingProgramError(RuntimeError):
    """A program of the control plane is neither there nor can it be built."""


def find(name: str) -> Path:
    """The program called ``name``, built first if need be. Raises MissingProgramError if that fails."""
    recipe = RECIPES[name]
    cached = cache_directory() / recipe.module.label / name
    return _from_assets(name) or _from_path(name, recipe) or _executable(cached) or _built(cached, recipe)


def cache_directory() -> Path:
    """``$JOBTREE_CACHE/control-plane``; ``JOBTREE_CACHE`` is ``jobtree`` in the user's cache unless set."""
    user_cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("JOBTREE_CACHE") or Path(user_cache) / "jobtree") / "control-plane"


def _executable(path: Path) -> Path | None:
    return path if path.is_file() and os.access(path, os.X_OK) else None


def _from_assets(name: str) -> Path | None:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    return _executable(Path(assets) / name) if assets else None


def _from_path(name: str, recipe: Recipe) -> Path | None:
    found = shutil.which(name)
    if found is None:
        return None
    program = Path(found)
    version, pinned = _version_of(program, recipe), _minor_version(recipe.module.version)
    assert pinned is not None, f"{recipe.module.version} is not a version"
    if version is None or version[0] != pinned[0] or abs(version[1] - pinned[1]) > 1:
        told = "does not tell its version" if version is None else f"is version {version[0]}.{version[1]}"
        _say(f"{program} {told}: not used, {pinned[0]}.{pinned[1]} is wanted")
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


def _built(target: Path, recipe: Recipe) -> Path:
    """Builds ``target``, unless another process did while this one waited for the lock."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with _lock(target.parent / ".lock"):
        if _executable(target) is None:
            _require_go(target.name)
            _build(target, recipe)
    return target


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """One process at a time. The kernel lets go of the lock of a process that died."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"waiting for another process that is building {path.parent.name}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _require_go(name: str) -> None:
    wanted = ".".join(map(str, GO_VERSION))
    advice = (
        f"{name} has to be built, and that takes Go {wanted} or newer (https://go.dev/dl). Install it, or "
        f"set KUBEBUILDER_ASSETS to a directory that holds {', '.join(RECIPES)}."
    )
    if shutil.which("go") is None:
        raise MissingProgramError(f"There is no `go` on PATH. {advice}")
    told = subprocess.run(
        ["go", "env", "GOVERSION", "GOTOOLCHAIN"], capture_output=True, text=True, timeout=60, check=False
    )
    if told.returncode != 0:
        raise MissingProgramError(f"`go env` failed: {told.stderr.strip()}. {advice}")
    version, toolchain = (*told.stdout.splitlines(), "")[:2]
    match = re.match(r"go(\d+)\.(\d+)", version)
    new_enough = match is not None and (int(match[1]), int(match[2])) >= GO_VERSION
    fetches_newer = toolchain not in {"", "local"}
    if not new_enough and not fetches_newer:
        raise MissingProgramError(f"Go is too old: {version or 'of an unknown version'}. {advice}")


def _build(target: Path, recipe: Recipe) -> None:
    wrapper = _wrapper(target.parent / "src", recipe.module)
    flags = " ".join(["-s -w", *(f"-X {variable}={value}" for variable, value in recipe.module.stamps)])
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
        out = Path(scratch) / target.name
        # -mod=mod lets Go fill in the wrapper's go.mod and go.sum as it resolves the module's imports.
        _go(
            [
                "build",
                "-mod=mod",
                "-trimpath",
                "-buildvcs=false",
                "-ldflags",
                flags,
                "-o",
                str(out),
                recipe.package,
            ],
            directory=wrapper,
            doing=f"building {target.name} {recipe.module.version}",
        )
        out.rename(target)


def _wrapper(directory: Path, module: Module) -> Path:
    directory.mkdir(exist_ok=True)
    answer = _go(
        ["mod", "download", "-json", f"{module.path}@{module.version}"],
        directory=directory,
        doing=f"fetching {module.path} {module.version}",
    )
    own_go_mod = Path(json.loads(answer)["GoMod"]).read_text()
    (directory / "go.mod").write_text(wrapper_go_mod(module, own_go_mod))
    return directory


def _go(arguments: list[str], *, directory: Path, doing: str) -> str:
    """Runs ``go``, telling on stderr every few seconds that it still does; returns its stdout."""
    environment = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off"}
    begun = time.monotonic()
    _say(f"{doing} …")
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            ["go", *arguments],
            cwd=directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as go,
    ):
        while True:
            try:
                output, _ = go.communicate(timeout=PROGRESS_SECONDS)
                break
            except subprocess.TimeoutExpired:
                _say(f"{doing} … {time.monotonic() - begun:.0f} s")
        errors.seek(0)
        if go.returncode != 0:
            last = "".join(errors.readlines()[-40:])
            raise MissingProgramError(
                f"{doing} failed: `go {' '.join(arguments)}` said:\n{last}{output[-4000:]}"
            )
    _say(f"{doing}: done in {time.monotonic() - begun:.0f} s")
    return output


def _say(text: str) -> None:
    sys.stderr.write(f"[control plane] {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    for program in sys.argv[1:] or RECIPES:
        sys.stdout.write(f"{find(program)}\n")
