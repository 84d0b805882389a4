"""Builds programs of one Go module, all at once, inside a wrapper module (``recipes`` says what that is)."""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

from tests.live.progress import CommandFailedError, run
from tests.live.recipes import AMENDED, GO_VERSION, RECIPES, Amendment, Module, wrapper_go_mod

BUILD_SECONDS = 45 * 60


class MissingProgramError(RuntimeError):
    """A program of the control plane is neither there nor can it be built."""


def build(module: Module, targets: Mapping[str, Path], directory: Path) -> None:
    """Builds each program of ``targets`` and puts it where it says, below ``directory``."""
    _require_go(targets)
    wrapper = directory / "src"
    wrapper.mkdir(exist_ok=True)
    _fill(wrapper, module, targets)
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


def _fill(wrapper: Path, module: Module, names: Collection[str]) -> None:
    doing = f"fetching {module.path} {module.version}"
    answer = _go(["mod", "download", "-json", f"{module.path}@{module.version}"], wrapper, doing)
    fetched = json.loads(answer)
    amendments = [change for name in names for change in RECIPES[name].amendments]
    if amendments:
        _amend(wrapper / AMENDED, Path(fetched["Dir"]), amendments)
    own_go_mod = Path(fetched["GoMod"]).read_text()
    (wrapper / "go.mod").write_text(wrapper_go_mod(module, own_go_mod, amended=bool(amendments)))
    for name in names:
        if source := RECIPES[name].source:
            (wrapper / name).mkdir(exist_ok=True)
            shutil.copy(source, wrapper / name / "main.go")


def _amend(copy: Path, fetched: Path, amendments: Collection[Amendment]) -> None:
    """Copies the module, for it is not ours to change where it is, and makes the amendments there."""
    shutil.copytree(fetched, copy, copy_function=shutil.copyfile, dirs_exist_ok=True)
    for change in amendments:
        file = copy / change.file
        file.write_text(change.applied_to(file.read_text()))


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
