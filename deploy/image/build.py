"""Builds the image of the manager: ``python deploy/image/build.py [--tag TAG] [FILE]``, as root.

The result is a file for ``ctr images import``, ``podman load`` and ``docker load``. There are three steps,
whose results are kept in the cache (``JOBTREE_CACHE``, else ``jobtree`` in the user's cache):

1. the base: Debian, unpacked by debootstrap from the mirror that apt uses, with its security updates
2. the wheels of the locked dependencies, whose hashes pip checks
3. the image itself, by buildah from the Containerfile; its file name has a hash of its sources

The build needs no registry and no daemon. If no source has changed, it only copies a file.
"""

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
NAME = "registry.jobtree.invalid/jobtree"
SUITE = "bookworm"
BASE_PACKAGES = "python3-venv,ca-certificates"
BASE = f"localhost/jobtree-base:{SUITE}-with-authorities"
PROGRAMS = {"buildah": "buildah", "debootstrap": "debootstrap"}
"""The programs that the build needs, each with its Debian package."""
STALE_SECONDS = 86_400


class ImageError(RuntimeError):
    """The image cannot be built; the message says what to do."""


def main(arguments: Sequence[str]) -> int:
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    parser = argparse.ArgumentParser(prog="make image", description="Builds the image of the manager.")
    parser.add_argument("--tag", default=version, help=f"the tag (default: {version})")
    parser.add_argument("--fresh", action="store_true", help="build the base again, with today's updates")
    parser.add_argument("file", type=Path, nargs="?", default=REPOSITORY / "build/image/jobtree.tar")
    options = parser.parse_args(arguments)
    try:
        if options.fresh:
            remove_base()
        built = image_file(options.tag)
    except ImageError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    options.file.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(built, options.file)
    size = options.file.stat().st_size // 1_000_000
    sys.stdout.write(f"{NAME}:{options.tag} is in {options.file} ({size} MB)\n")
    return 0


def image_file(tag: str) -> Path:
    """Returns the file of the image with this tag in the cache, built if needed. Raises ImageError."""
    target = cache() / f"jobtree-{tag}-{fingerprint()}.tar"
    with (cache() / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process builds, the others wait and use its file
        if not target.exists():
            _check_requirements()
            with tempfile.TemporaryDirectory(dir=cache(), prefix=".image-") as scratch:
                _build(Path(scratch), f"{NAME}:{tag}")
                (Path(scratch) / "image.tar").replace(target)
            _remove_old_images(target)
        os.utime(target)
    return target


def remove_base() -> None:
    """Removes the base and all images, so that the next build gets current security updates."""
    if base := _base():
        _buildah("rmi", "--force", base)
    for path in cache().glob("jobtree-*.tar"):
        path.unlink()


def fingerprint() -> str:
    """Returns a hash of the sources of the image, twelve characters long."""
    digest = hashlib.sha256()
    for path in sorted(_sources()):
        digest.update(str(path.relative_to(REPOSITORY)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def cache() -> Path:
    user_cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    directory = Path(os.environ.get("JOBTREE_CACHE") or Path(user_cache) / "jobtree") / "image"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _sources() -> Iterator[Path]:
    yield from (REPOSITORY / name for name in ("pyproject.toml", "README.md", "LICENSE"))
    yield from (path for path in HERE.iterdir() if path.is_file())
    for path in (REPOSITORY / "src").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path


def _check_requirements() -> None:
    if os.geteuid() != 0:
        raise ImageError("debootstrap and chroot need root: run this as root")
    missing = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    if missing:
        raise ImageError(f"{' and '.join(missing)} missing: apt-get install {' '.join(missing)}")


def _build(scratch: Path, name: str) -> None:
    if not _base():
        _make_base(scratch)
    context = scratch / "context"
    shutil.copytree(_wheels(), context / "wheels")
    for file in ("requirements.lock", "assemble.py"):
        shutil.copy(HERE / file, context)
    _pip("wheel", "--no-deps", "--no-build-isolation", f"--wheel-dir={context / 'package'}", str(REPOSITORY))
    build = (
        "bud",
        "--pull-never",
        "--squash",
        "--timestamp=0",
        f"--tag={name}",
        f"--file={HERE / 'Containerfile'}",
    )
    _buildah(*build, str(context))
    _buildah("push", name, f"docker-archive:{scratch / 'image.tar'}:{name}")
    _buildah("rmi", "--force", name)


def _base() -> str:
    """Returns the ID of the base in buildah's storage, or an empty string."""
    return _buildah("images", "--quiet", "--filter", f"reference={BASE}").strip()


def _make_base(scratch: Path) -> None:
    """Builds the image BASE: Debian with the packages that the build needs."""
    _report(f"making the base, {BASE}, with debootstrap")
    root = scratch / "base"
    _run("debootstrap", "--variant=minbase", f"--include={BASE_PACKAGES}", SUITE, str(root), _mirror())
    for sources in (*Path("/etc/apt").glob("sources.list"), *Path("/etc/apt/sources.list.d").iterdir()):
        shutil.copy(sources, root / sources.relative_to("/"))
    for step in ("update", "-y upgrade", "clean"):
        _run("chroot", str(root), "apt-get", "-q", *step.split())
    containerfile = scratch / "Base"
    containerfile.write_text("FROM scratch\nCOPY . /\n")
    _buildah("bud", f"--tag={BASE}", f"--file={containerfile}", str(root))


def _mirror() -> str:
    """Returns the mirror from which apt on this machine gets the suite."""
    lines = _run(
        *("apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages")
    ).splitlines()
    mirrors = [line.split()[1] for line in lines if line.split()[0] == SUITE]
    if not mirrors:
        raise ImageError(f"apt on this machine has no mirror of Debian {SUITE}: add one to its sources")
    return mirrors[0]


def _wheels() -> Path:
    """Returns a directory with exactly the wheels in the lock file."""
    lock = HERE / "requirements.lock"
    target = cache() / f"wheels-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    if not target.exists():
        _report("fetching the wheels of the locked dependencies")
        with tempfile.TemporaryDirectory(dir=cache(), prefix=".wheels-") as scratch:
            download = Path(scratch) / "wheels"
            _pip(
                *("download", "--require-hashes", "--only-binary=:all:", "--python-version=3.11"),
                *(f"--dest={download}", f"--requirement={lock}"),
            )
            download.replace(target)
    return target


def _remove_old_images(kept: Path) -> None:
    """Removes images that were not used for a day."""
    for path in kept.parent.glob("jobtree-*.tar"):
        if path != kept and time.time() - path.stat().st_mtime > STALE_SECONDS:
            path.unlink(missing_ok=True)


def _buildah(*arguments: str) -> str:
    storage = ("--root", str(cache() / "storage"), "--runroot", str(cache() / "storage-run"))
    return _run("buildah", *storage, "--storage-driver=vfs", *arguments, isolation="chroot")


def _pip(*arguments: str) -> str:
    return _run(sys.executable, "-m", "pip", "--quiet", *arguments)


def _run(*command: str, isolation: str = "") -> str:
    environment = os.environ | {"BUILDAH_ISOLATION": isolation, "DEBIAN_FRONTEND": "noninteractive"}
    process = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if process.returncode != 0:
        last_lines = "\n".join((process.stdout + process.stderr).splitlines()[-30:])
        raise ImageError(f"`{' '.join(command)}` failed:\n{last_lines}")
    return process.stdout


def _report(text: str) -> None:
    sys.stderr.write(f"[image] {text} …\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
