"""Builds the container images of the real nodes, since there is no registry.

``PAUSE_IMAGE`` holds the network of a pod. ``PYTHON_IMAGE`` is a root file system with Python 3 and a shell
(busybox), unpacked from packages of this machine's Debian. Each is a file in the cache in the format of
``docker save``, built once; its name contains a digest of what it is built from, which for ``PYTHON_IMAGE``
includes this file.
"""

import hashlib
import io
import json
import platform
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from tests.live.programs.long_command import report_progress, run_command
from tests.live.programs.program_finder import cache_directory, find_program

PAUSE_IMAGE = "images.jobtree.test/pause:1"
PYTHON_IMAGE = "images.jobtree.test/python:3"

PACKAGES = ("python3", "busybox-static")
DOWNLOAD_SECONDS = 600
_NOT_NEEDED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/lintian", "var/lib/dpkg")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def image_files() -> list[Path]:
    """Returns the files of both images, after building missing ones."""
    return [_pause(), _python()]


def _pause() -> Path:
    program = find_program("pause")
    target = _target(f"pause-{hashlib.sha256(program.read_bytes()).hexdigest()[:12]}")
    if not target.exists():
        with tempfile.TemporaryDirectory() as root:
            shutil.copy(program, Path(root) / "pause")
            _save(Path(root), target, PAUSE_IMAGE, ["/pause"])
    return target


def _python() -> Path:
    source = Path(__file__).read_bytes() + Path("/etc/os-release").read_bytes()
    target = _target(f"python-{hashlib.sha256(source).hexdigest()[:12]}")
    if not target.exists():
        with tempfile.TemporaryDirectory() as scratch:
            packages = _download(Path(scratch))
            root = Path(scratch) / "root"
            report_progress(f"unpacking {len(packages)} packages for the image {PYTHON_IMAGE}")
            _unpack(packages, root)
            _save(root, target, PYTHON_IMAGE, ["/usr/bin/python3"])
    return target


def _target(name: str) -> Path:
    directory = cache_directory() / "images"
    directory.mkdir(parents=True, exist_ok=True)
    return directory / f"{name}.tar"


def _download(scratch: Path) -> list[Path]:
    """Downloads the packages and all their dependencies, with an empty list of installed packages."""
    archives, status = scratch / "archives", scratch / "status"
    (archives / "partial").mkdir(parents=True)
    status.touch()
    options = [f"Dir::State::status={status}", f"Dir::Cache::archives={archives}", "APT::Sandbox::User=root"]
    run_command(["apt-get", "-q", "update"], "apt-get update", within_seconds=DOWNLOAD_SECONDS)
    run_command(
        [
            *("apt-get", "-q", "-y", "--no-install-recommends", "--download-only"),
            *(part for option in options for part in ("-o", option)),
            *("install", *PACKAGES),
        ],
        f"downloading {', '.join(PACKAGES)} for the image {PYTHON_IMAGE}",
        within_seconds=DOWNLOAD_SECONDS,
    )
    return sorted(archives.glob("*.deb"))


def _unpack(packages: list[Path], root: Path) -> None:
    for name in ("bin", "sbin", "lib", "lib64"):  # links to the directories of the same names in /usr
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for package in packages:
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as files:
            unpack = ["tar", "-x", "--keep-directory-symlink", "-C", str(root)]
            subprocess.run(unpack, stdin=files.stdout, check=True)
        assert files.returncode == 0, f"{package} cannot be read"
    for path in _NOT_NEEDED:
        shutil.rmtree(root / path, ignore_errors=True)
    (root / "tmp").mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)
    for name in ("sh", "sleep", "cat", "env", "ls", "hostname"):
        (root / "bin" / name).symlink_to("busybox")


def _save(root: Path, target: Path, name: str, entrypoint: list[str]) -> None:
    """Writes the files below ``root`` as an image of one layer, and moves it to ``target``."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".image-") as scratch:
        layer, image = Path(scratch) / "layer.tar", Path(scratch) / "image.tar"
        with tarfile.open(layer, "w") as files:
            files.add(root, arcname=".")
        with layer.open("rb") as raw:
            digest = hashlib.file_digest(raw, "sha256").hexdigest()
        config = {
            "architecture": _ARCHITECTURES[platform.machine()],
            "os": "linux",
            "config": {"Entrypoint": entrypoint, "Env": [_PATH]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
        manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
        with tarfile.open(image, "w") as files:
            for file, content in (("manifest.json", manifest), ("config.json", config)):
                raw_json = json.dumps(content).encode()
                entry = tarfile.TarInfo(file)
                entry.size = len(raw_json)
                files.addfile(entry, io.BytesIO(raw_json))
            files.add(layer, arcname="layer.tar")
        image.replace(target)
