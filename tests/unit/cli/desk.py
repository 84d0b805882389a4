"""A desk to work at: manifests in few words, and kubectl runs in-process with what it printed."""

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

API = "rq.davidlangworthy.io/v1"
SIM = "sim.rq.davidlangworthy.io/v1"
T0 = "2026-01-05T09:00:00Z"
FLAVOR = "H100-80GB"

Body = dict[str, Any]


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    def json(self) -> Any:  # noqa: ANN401  whatever was printed
        return json.loads(self.out)


class Desk:
    """An empty directory with a cluster.yaml, and a way to run commands on it."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self.state = directory / "cluster.yaml"
        self._capsys = capsys

    def runs(self, *words: str) -> Answer:
        """``kubectl runs WORDS`` on the desk's cluster."""
        return self.bare("--state", str(self.state), *words)

    def bare(self, *words: str) -> Answer:
        """``kubectl runs WORDS``, whatever cluster they name."""
        self._capsys.readouterr()
        with terminal(110):
            code = main(list(words))
        return Answer(code, *self._capsys.readouterr())

    def cluster(self, *bodies: Body, now: str = T0) -> None:
        clock = {"apiVersion": SIM, "kind": "Clock", "spec": {"now": now}}
        self.state.write_text(dump_yaml([clock, *bodies]))

    def file(self, name: str, *bodies: Body) -> str:
        path = self.directory / name
        path.write_text(dump_yaml(bodies))
        return str(path)

    def submit(self, *bodies: Body) -> Answer:
        return self.runs("submit", "-f", self.file("submitted.yaml", *bodies))

    def double_lease(self, name: str) -> None:
        """Write a second lease on the same slots into the file: what must never be."""
        lease = self.saved("Lease", self.saved("Run", name)["status"]["allocation"]["leases"][0]["name"])
        lease["metadata"] = {"name": "another-1"}
        self.state.write_text(self.state.read_text() + "---\n" + dump_yaml([lease]))

    def saved(self, kind: str, name: str) -> Body:
        """An object as the state file has it."""
        documents = read_documents(self.state.read_bytes(), "cluster.yaml")
        (body,) = (
            one.body
            for one in documents
            if one.body["kind"] == kind and one.body.get("metadata", {}).get("name") == name
        )
        return body


@contextmanager
def terminal(columns: int) -> Iterator[None]:
    """A plain terminal of this width, and no cluster that the developer may have set."""
    inherited = {
        key: value for key, value in os.environ.items() if not key.startswith(("JOBTREE", "COL", "KUBE"))
    }
    with patch.dict(os.environ, {**inherited, "COLUMNS": str(columns), "NO_COLOR": "1"}, clear=True):
        yield


def node(name: str, domain: str = "nv-a", flavor: str = FLAVOR, **labels: str) -> Body:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"fabric.domain": domain, "gpu.flavor": flavor, **labels}},
        "status": {"allocatable": {"nvidia.com/gpu": 8}},
    }


def nodes(count: int, stem: str = "a") -> list[Body]:
    """``a01``, ``a02``, …, all in the domain ``nv-a``."""
    return [node(f"{stem}{number:02}", f"nv-{stem}") for number in range(1, count + 1)]


def envelope(concurrency: int = 8, name: str = "own", **fields: object) -> Body:
    return {"name": name, "flavor": FLAVOR, "concurrency": concurrency, **fields}


def budget(name: str, *envelopes: Body, owner: str | None = None, **fields: object) -> Body:
    """A Budget of the owner ``org:NAME``."""
    spec = {"owner": owner or f"org:{name}", "envelopes": list(envelopes), **fields}
    return {"apiVersion": API, "kind": "Budget", "metadata": {"name": name}, "spec": spec}


def run(name: str, gpus: int = 8, owner: str = "org:lab", namespace: str = "", **fields: object) -> Body:
    metadata: Body = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    spec = {"owner": owner, "resources": {"gpuType": FLAVOR, "totalGPUs": gpus}, **fields}
    return {"apiVersion": API, "kind": "Run", "metadata": metadata, "spec": spec}


def lasting(body: Body, duration: str) -> Body:
    """The same Run with work that takes so long."""
    body["metadata"]["annotations"] = {"sim.rq.davidlangworthy.io/duration": duration}
    return body
