"""A person at a terminal: their own kubeconfig, their own rights, and ``kubectl runs`` from the PATH."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.live.control_plane import ControlPlane
from tests.live.guarding import RBAC, may
from tests.live.managing import REPOSITORY
from tests.live.process import wait_until

ANSWER_SECONDS = 180


class Said(NamedTuple):
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:  # noqa: ANN401  whatever was printed
        return json.loads(self.out)


class Person:
    """``directory`` is where they keep their files; ``namespace`` is their context's."""

    def __init__(self, plane: ControlPlane, name: str, namespace: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        config = yaml.safe_load(plane.kubeconfig(name).read_text())
        config["contexts"][0]["context"]["namespace"] = namespace
        self.kubeconfig = directory / f"{name}.kubeconfig"
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(yaml.safe_dump(config))
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("JOBTREE", "KUBE"))}
        programs = (Path(sys.executable).parent, plane.kubectl_program.parent)
        self.environment = {
            **kept,
            "HOME": str(directory),
            "KUBECONFIG": str(self.kubeconfig),
            "PATH": os.pathsep.join([*map(str, programs), os.environ["PATH"]]),
            "PYTHONPATH": str(REPOSITORY / "src"),
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "160",
            "NO_COLOR": "1",
        }

    def file(self, name: str, *bodies: object) -> str:
        """Writes a manifest to submit."""
        (self.directory / name).write_text(yaml.safe_dump_all(bodies))
        return name

    def runs(self, *words: str) -> Said:
        """``kubectl runs WORDS``: kubectl finds the plugin, as a user's does."""
        return self._done(["kubectl", "runs", *words])

    def kubectl(self, *words: str) -> Said:
        return self._done(["kubectl", *words])

    def _done(self, command: list[str]) -> Said:
        done = subprocess.run(
            command,
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=ANSWER_SECONDS,
        )
        return Said(done.returncode, done.stdout, done.stderr)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """A command that goes on: the plugin itself, so that a signal reaches it."""
        return subprocess.Popen(
            ["kubectl-runs", *words],
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def bind(plane: ControlPlane, role: str, person: str, namespace: str = "") -> None:
    """Give somebody a role, everywhere or in a namespace, as an administrator does."""
    kind = "rolebinding" if namespace else "clusterrolebinding"
    where = ["-n", namespace] if namespace else []
    plane.kubectl(
        "create",
        kind,
        f"{person}-{role}-{namespace or 'all'}",
        f"--clusterrole={role}",
        f"--user={person}",
        *where,
    )
    rules = plane.rest.get(f"{RBAC}/clusterroles/{role}").body.get("rules") or ()
    for rule in [one for one in rules if "resources" in one][:1]:  # the authorizer hears of it a moment later
        wait_until(lambda: may(plane, person, rule, namespace), f"{person} has the role {role}")  # noqa: B023


def let_spend(plane: ControlPlane, person: str, owner: str) -> None:
    """Lets somebody charge a team: the verb spend on its path."""
    name = f"spend-{person}"
    plane.kubectl(
        "create", "clusterrole", name, "--verb=spend",
        "--resource=budgets.rq.davidlangworthy.io", f"--resource-name={owner}",
    )  # fmt: skip
    bind(plane, name, person)
