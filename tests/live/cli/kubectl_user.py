"""A user at a terminal, with a kubeconfig and rights of their own, and ``kubectl runs`` on the PATH."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.live.cluster.control_plane import ControlPlane
from tests.shown import REPOSITORY

ANSWER_SECONDS = 180


class CommandResult(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    def json(self) -> Any:  # noqa: ANN401  JSON
        return json.loads(self.out)


class KubectlUser:
    """A user whose files are in ``directory`` and whose context has ``namespace``."""

    def __init__(self, plane: ControlPlane, name: str, namespace: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        config = yaml.safe_load(plane.kubeconfig(name).read_text())
        config["contexts"][0]["context"]["namespace"] = namespace
        self.kubeconfig = directory / f"{name}.kubeconfig"
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(yaml.safe_dump(config))
        inherited = {
            key: value for key, value in os.environ.items() if not key.startswith(("JOBTREE", "KUBE"))
        }
        program_directories = (Path(sys.executable).parent, plane.kubectl_program.parent)
        self.environment = {
            **inherited,
            "HOME": str(directory),
            "KUBECONFIG": str(self.kubeconfig),
            "PATH": os.pathsep.join([*map(str, program_directories), os.environ["PATH"]]),
            "PYTHONPATH": str(REPOSITORY / "src"),
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "160",
            "NO_COLOR": "1",
        }

    def write_manifest(self, name: str, *documents: object) -> str:
        """Writes a file to submit; returns its name."""
        (self.directory / name).write_text(yaml.safe_dump_all(documents))
        return name

    def kubectl_runs(self, *arguments: str) -> CommandResult:
        """Runs ``kubectl runs ARGUMENTS``; kubectl finds the plugin on the PATH."""
        return self._execute(["kubectl", "runs", *arguments])

    def kubectl(self, *arguments: str) -> CommandResult:
        return self._execute(["kubectl", *arguments])

    def _execute(self, command: list[str]) -> CommandResult:
        completed = subprocess.run(
            command,
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=ANSWER_SECONDS,
        )
        return CommandResult(completed.returncode, completed.stdout, completed.stderr)

    def start_plugin(self, *arguments: str) -> subprocess.Popen[str]:
        """Starts the plugin without kubectl, so that signals reach it, and does not wait for its end."""
        return subprocess.Popen(
            ["kubectl-runs", *arguments],
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
