"""Builds programs of one Go module, all at once, inside a wrapper module (``recipes`` says what that is)."""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.live.progress import CommandFailedError, run
from tests.live.recipes import GO_VERSION, RECIPES, Module, wrapper_go_mod

BUILD_SECONDS = 45 * 60


class MissingProgramError(RuntimeError):
    """A program of the control plane is neither there nor can it be built."""


def build(module: Module, targets: Mapping[str, Path], directory: Path) -> None:
    """Builds each program of ``targets`` and puts it where it says, below ``directory``."""
    _require_go(targets)
    wrapper = _wrapper(directory / "src", module, targets)
    flags = " ".join(["-s -w", *(f"-X {variable}={value}" for variable, value in module.stamps)])
    # -mod=mod lets Go fill in the wrapper's go.mod and go.sum as it resolves the module's imports.
    command = ["build", "-mod=mod", "-trimpath", "-buildvcs=false", "-ldflags", flags]
    packages = [RECIPES[name].package for name in targets]
    with tempfile.TemporaryDirectory(dir=directory, prefix=".build-") as scratch:
        doing = f"building {', '.join(targets)} {module.version}"
        _go([*command, "-o", f"{scratch}/", *packages], wrapper, doing)
        for name, target in targets.items():
            (Path(scratch) / RECIPES[name].made_as).rename(target)


def _require_go(names: Mapping[str, Path]) -> None:
    wanted = ".".join(map(str, GO_VERSION))
    advice = (
        f"{', '.join(names)} has to be built, and that takes Go {wanted} or newer (https://go.dev/dl). "
        f"Install it, or set KUBEBUILDER_ASSETS to a directory that holds {', '.join(RECIPES)}."
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


def _wrapper(directory: Path, module: Module, names: Mapping[str, Path]) -> Path:
    directory.mkdir(exist_ok=True)
    doing = f"fetching {module.path} {module.version}"
    answer = _go(["mod", "download", "-json", f"{module.path}@{module.version}"], directory, doing)
    own_go_mod = Path(json.loads(answer)["GoMod"]).read_text()
    (directory / "go.mod").write_text(wrapper_go_mod(module, own_go_mod))
    for name in names:
        if source := RECIPES[name].source:
            (directory / name).mkdir(exist_ok=True)
            shutil.copy(source, directory / name / "main.go")
    return directory


def _go(arguments: list[str], directory: Path, doing: str) -> str:
    environment = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off"}
    try:
        return run(
            ["go", *arguments],
            doing,
            within_seconds=BUILD_SECONDS,
            directory=directory,
            environment=environment,
        )
    except CommandFailedError as failed:
        raise MissingProgramError(str(failed)) from None
