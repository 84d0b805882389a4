#!/usr/bin/env python3
"""Builds the krew plugin: an archive with the plugin and its dependencies, and the krew manifest.

``python deploy/krew/package.py DIRECTORY`` packs the installed dependencies for the system and the version of
Python that it runs on, since some of them are compiled. Nothing is downloaded.
"""

import hashlib
import io
import platform
import sys
import tarfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src" / "jobtree"
DEPENDENCIES = ("click", "msgspec", "PyYAML", "cryptography", "cffi", "pycparser")
EXCLUDED = ("manager",)  # it runs on the cluster only
PROGRAM = "kubectl-runs"
# deploy/addresses.py replaces this placeholder. A local archive can be installed without it.
RELEASES = "https://releases.jobtree.invalid"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64", "AMD64": "amd64"}
LAUNCHER = """\
#!/bin/sh
# krew calls this script through a symbolic link.
here=$(dirname "$(readlink -f "$0")")
command -v {python} >/dev/null || {{ echo "error: kubectl runs needs {python} on the PATH" >&2; exit 1; }}
PYTHONPATH="$here/lib" exec {python} -m jobtree.cli.main "$@"
"""


def main(directory: Path) -> None:
    """Writes the archive and its manifest."""
    directory.mkdir(parents=True, exist_ok=True)
    system, architecture = platform.system().lower(), ARCHITECTURES[platform.machine()]
    archive = directory / f"{PROGRAM}-{system}-{architecture}.tar.gz"
    archive.write_bytes(archive_bytes())
    manifest = krew_manifest(archive, system, architecture)
    (directory / "runs.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))


def archive_bytes() -> bytes:
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w:gz") as archive:
        _add(archive, PROGRAM, LAUNCHER.format(python=python).encode(), 0o755)
        _add(archive, "LICENSE", (HERE.parents[1] / "LICENSE").read_bytes())
        for name, path in sorted(files()):
            _add(archive, f"lib/{name}", path.read_bytes())
    return memory.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def files() -> Iterator[tuple[str, Path]]:
    """Yields every file of the plugin and of its dependencies, with its path in the archive."""
    for path in SOURCE.rglob("*"):
        relative = path.relative_to(SOURCE)
        if path.is_file() and relative.parts[0] not in EXCLUDED and "__pycache__" not in relative.parts:
            yield f"jobtree/{relative}", path
    for package in map(distribution, DEPENDENCIES):
        yield from _files_of(package)
    yield from (file for file in _files_of(distribution("jobtree")) if ".dist-info/METADATA" in file[0])


def _files_of(package: Distribution) -> Iterator[tuple[str, Path]]:
    for file in package.files or ():
        if ".." not in file.parts and "__pycache__" not in file.parts:
            yield str(file), Path(str(file.locate()))


def krew_manifest(archive: Path, system: str, architecture: str) -> dict[str, Any]:
    manifest: dict[str, Any] = yaml.safe_load((HERE / "runs.yaml").read_text())
    version = f"v{distribution('jobtree').version}"
    platform_entry = {
        "selector": {"matchLabels": {"os": system, "arch": architecture}},
        "uri": f"{RELEASES}/{version}/{archive.name}",
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "bin": PROGRAM,
    }
    manifest["spec"] |= {"version": version, "platforms": [platform_entry]}
    return manifest


if __name__ == "__main__":
    main(Path(sys.argv[1]))
