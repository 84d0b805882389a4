"""The krew package: its manifest names the archive, and the unpacked plugin runs without the repository."""

import hashlib
import importlib.util
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from jobtree import __version__

SCRIPT = Path(__file__).parents[2] / "deploy" / "krew" / "package.py"


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = importlib.util.spec_from_file_location("package", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    directory = tmp_path_factory.mktemp("dist")
    module.main(directory)
    return directory


def test_manifest_names_the_archive_and_its_checksum(dist: Path) -> None:
    manifest = yaml.safe_load((dist / "runs.yaml").read_text())
    (platform,) = manifest["spec"]["platforms"]
    archive = dist / platform["uri"].rpartition("/")[2]
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert (manifest["metadata"]["name"], manifest["spec"]["version"]) == ("runs", f"v{__version__}")
    with tarfile.open(archive) as packed:
        assert packed.getmember(platform["bin"]).mode & 0o111
        assert packed.getmember("LICENSE").size


def test_unpacked_plugin_runs_without_the_repository(dist: Path, tmp_path: Path) -> None:
    (archive,) = dist.glob("*.tar.gz")
    store, links = tmp_path / "store", tmp_path / "bin"
    links.mkdir()
    with tarfile.open(archive) as packed:
        packed.extractall(store, filter="data")
    (links / "kubectl-runs").symlink_to(store / "kubectl-runs")  # as krew does it
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (links / version).symlink_to(
        Path(sys.base_prefix) / "bin" / version
    )  # a Python without installed packages
    path = os.pathsep.join([str(links), "/usr/bin", "/bin"])

    def runs(*words: str) -> str:
        process = subprocess.run(
            ["kubectl-runs", *words],
            cwd=tmp_path,
            env={"PATH": path, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        return process.stdout

    assert runs("version") == f"jobtree {__version__}\n"
    runs("init", "cluster.yaml")
    assert "default/hello" in runs("--state", "cluster.yaml", "state")
