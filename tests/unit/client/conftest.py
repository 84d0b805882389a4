from collections.abc import Iterator
from pathlib import Path

import pytest

import jobtree
from jobtree.api.documents.document_stream import dump_yaml
from tests.unit.cli.cli_runner import terminal
from tests.unit.cli.manifests import SIM, T0, budget, envelope, nodes


@pytest.fixture
def state(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """The state file of a cluster of two nodes in one domain, where the team org:lab may hold 8 GPUs."""
    clock = {"apiVersion": SIM, "kind": "Clock", "spec": {"now": T0}}
    path = tmp_path / "cluster.yaml"
    path.write_text(dump_yaml([clock, *nodes(2), budget("lab", envelope(8))]))
    with terminal(110):
        monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))  # the lottery key is created there
        monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
        yield path


@pytest.fixture
def cluster(state: Path) -> Iterator[jobtree.SimulatedClusterClient]:
    """The same cluster, as the current one."""
    with jobtree.cluster(state) as cluster:
        yield cluster
