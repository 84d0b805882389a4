"""Builds the programs of one Go module in one call of Go, inside a wrapper module (see ``build_recipes``)."""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

from tests.live.programs.build_recipes import AMENDED, GO_VERSION, RECIPES, Amendment, Module, wrapper_go_mod
from tests.live.programs.long_command import CommandFailedError, run_command

BUILD_SECONDS = 45 * 60


class MissingProgramError(RuntimeError):
    """A program can be neither found nor built."""


def build(module: Module, targets: Mapping[str, Path], directory: Path) -> None:
    """Builds each program of ``targets`` and moves it to its path, below ``directory``."""
    _require_go(targets)
    wrapper = directory / "src"
    wrapper.mkdir(exist_ok=True)
    _write_wrapper(wrapper, module, targets)
    flags = " ".join(["-s -w", *(f"-X {variable}={value}" for variable, value in module.stamps)])
    # -mod=mod lets Go fill in the wrapper's go.mod and go.sum as it resolves the module's imports.
    command = ["build", "-mod=mod", "-trimpath", "-buildvcs=false", "-ldflags", flags]
    packages = [RECIPES[name].package for name in targets]
    with tempfile.TemporaryDirectory(dir=directory, prefix=".build-") as scratch:
        activity = f"building {', '.join(targets)} {module.version}"
        _go([*command, "-o", f"{scratch}/", *packages], wrapper, activity)
        for name, target in targets.items():
            (Path(scratch) / RECIPES[name].built_name).rename(target)


def _require_go(names: Mapping[str, Path]) -> None:
    wanted = ".".join(map(str, GO_VERSION))
    advice = (
        f"{', '.join(names)} must be built, which needs Go {wanted} or newer (https://go.dev/dl). "
        f"Install it, or set KUBEBUILDER_ASSETS to a directory that contains {', '.join(RECIPES)}."
    )
    if shutil.which("go") is None:
        raise MissingProgramError(f"There is no `go` on PATH. {advice}")
    result = subprocess.run(
        ["go", "env", "GOVERSION", "GOTOOLCHAIN"], capture_output=True, text=True, timeout=60, check=False
    )
    if result.returncode != 0:
        raise MissingProgramError(f"`go env` failed: {result.stderr.strip()}. {advice}")
    version, toolchain = (*result.stdout.splitlines(), "")[:2]
    match = re.match(r"go(\d+)\.(\d+)", version)
    new_enough = match is not None and (int(match[1]), int(match[2])) >= GO_VERSION
    fetches_newer = toolchain not in {"", "local"}
    if not new_enough and not fetches_newer:
        raise MissingProgramError(f"Go is too old: {version or 'unknown version'}. {advice}")


def _write_wrapper(wrapper: Path, module: Module, names: Collection[str]) -> None:
    activity = f"downloading {module.path} {module.version}"
    output = _go(["mod", "download", "-json", f"{module.path}@{module.version}"], wrapper, activity)
    downloaded = json.loads(output)
    amendments = [change for name in names for change in RECIPES[name].amendments]
    if amendments:
        _amend(wrapper / AMENDED, Path(downloaded["Dir"]), amendments)
    own_go_mod = Path(downloaded["GoMod"]).read_text()
    (wrapper / "go.mod").write_text(wrapper_go_mod(module, own_go_mod, amended=bool(amendments)))
    for name in names:
        if source := RECIPES[name].source:
            (wrapper / name).mkdir(exist_ok=True)
            shutil.copy(source, wrapper / name / "main.go")


def _amend(copy: Path, downloaded: Path, amendments: Collection[Amendment]) -> None:
    """Copies the module and amends the copy, because Go's module cache must not change."""
    shutil.copytree(downloaded, copy, copy_function=shutil.copyfile, dirs_exist_ok=True)
    for change in amendments:
        file = copy / change.file
        file.write_text(change.applied_to(file.read_text()))


def _go(arguments: list[str], directory: Path, activity: str) -> str:
    environment = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off"}
    try:
        return run_command(
            ["go", *arguments],
            activity,
            within_seconds=BUILD_SECONDS,
            directory=directory,
            environment=environment,
        )
    except CommandFailedError as error:
        raise MissingProgramError(str(error)) from None
