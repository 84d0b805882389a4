"""Runs kubectl runs in this process, on a state file in an empty directory, and returns what it printed."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from jobtree.api.documents.document_stream import dump_yaml, read_documents
from jobtree.cli.main import main
from tests.unit.cli.manifests import SIM, T0, Body


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str

    def json(self) -> Any:  # noqa: ANN401  any JSON document
        return json.loads(self.out)


class CliRunner:
    """A directory with the state file ``cluster.yaml``, and commands that use it."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self.state = directory / "cluster.yaml"
        self._capsys = capsys

    def runs(self, *words: str) -> CommandResult:
        """Executes ``kubectl runs --state cluster.yaml WORDS``."""
        return self.without_state("--state", str(self.state), *words)

    def without_state(self, *words: str) -> CommandResult:
        """Executes ``kubectl runs WORDS``."""
        self._capsys.readouterr()
        with terminal(110):
            code = main(list(words))
        return CommandResult(code, *self._capsys.readouterr())

    def write_cluster(self, *bodies: Body, now: str = T0) -> None:
        clock = {"apiVersion": SIM, "kind": "Clock", "spec": {"now": now}}
        self.state.write_text(dump_yaml([clock, *bodies]))

    def write_file(self, name: str, *bodies: Body) -> str:
        path = self.directory / name
        path.write_text(dump_yaml(bodies))
        return str(path)

    def submit(self, *bodies: Body) -> CommandResult:
        return self.runs("submit", "-f", self.write_file("submitted.yaml", *bodies))

    def duplicate_lease(self, run_name: str) -> None:
        """Adds a second lease on the slots of the Run to the state file, which breaks an invariant."""
        lease = self.saved("Lease", self.saved("Run", run_name)["status"]["allocation"]["leases"][0]["name"])
        lease["metadata"] = {"name": "another-1"}
        self.state.write_text(self.state.read_text() + "---\n" + dump_yaml([lease]))

    def saved(self, kind: str, name: str) -> Body:
        """Returns an object of the state file."""
        documents = read_documents(self.state.read_bytes(), "cluster.yaml")
        (body,) = (
            document.body
            for document in documents
            if document.body["kind"] == kind and document.body.get("metadata", {}).get("name") == name
        )
        return body


@contextmanager
def terminal(columns: int) -> Iterator[None]:
    """Sets up a plain terminal of this width, and hides the clusters that the developer has configured."""
    inherited = {
        key: value for key, value in os.environ.items() if not key.startswith(("JOBTREE", "COL", "KUBE"))
    }
    with patch.dict(os.environ, {**inherited, "COLUMNS": str(columns), "NO_COLOR": "1"}, clear=True):
        yield
