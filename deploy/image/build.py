"""Builds the image of the manager: ``python deploy/image/build.py [--tag TAG] [FILE]``, as root.

What is made is a file that ``ctr images import``, ``podman load`` and ``docker load`` take. Three steps,
each made once and kept in the cache (``JOBTREE_CACHE``, else ``jobtree`` in the user's cache):

1. the base: Debian, unpacked by debootstrap from the mirror that apt uses, with its security updates
2. the wheels of the locked dependencies, whose hashes pip checks
3. the image itself, by buildah from the Containerfile, under a name that tells what it was made from

There is no registry in any of this and no daemon. A build of which nothing has changed is a copy of a file.
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
INCLUDED = "python3-venv,ca-certificates"
BASE = f"localhost/jobtree-base:{SUITE}-with-authorities"
PROGRAMS = {"buildah": "buildah", "debootstrap": "debootstrap"}
"""Each program that is needed, and Debian's package of it."""
STALE_SECONDS = 86_400


class ImageError(RuntimeError):
    """The image cannot be built; the message says what to do."""


def main(arguments: Sequence[str]) -> int:
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    parser = argparse.ArgumentParser(prog="make image", description="Builds the image of the manager.")
    parser.add_argument("--tag", default=version, help=f"the tag (default: {version})")
    parser.add_argument("--fresh", action="store_true", help="make the base anew, with today's updates")
    parser.add_argument("file", type=Path, nargs="?", default=REPOSITORY / "build/image/jobtree.tar")
    given = parser.parse_args(arguments)
    try:
        if given.fresh:
            forget_base()
        built = image_file(given.tag)
    except ImageError as problem:
        sys.stderr.write(f"error: {problem}\n")
        return 1
    given.file.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(built, given.file)
    size = given.file.stat().st_size // 1_000_000
    sys.stdout.write(f"{NAME}:{given.tag} is in {given.file} ({size} MB)\n")
    return 0


def image_file(tag: str) -> Path:
    """The image under this tag, as a file in the cache; made first if need be. Raises ImageError."""
    target = cache() / f"jobtree-{tag}-{fingerprint()}.tar"
    with (cache() / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one builds, the others then find what it built
        if not target.exists():
            _check()
            with tempfile.TemporaryDirectory(dir=cache(), prefix=".image-") as scratch:
                _build(Path(scratch), f"{NAME}:{tag}")
                (Path(scratch) / "image.tar").replace(target)
            _forget(target)
        os.utime(target)
    return target


def forget_base() -> None:
    """The next image is made on a new base, with the security updates of that day."""
    if base := _base():
        _buildah("rmi", "--force", base)
    for path in cache().glob("jobtree-*.tar"):
        path.unlink()


def fingerprint() -> str:
    """What the image is made from, in twelve characters."""
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


def _check() -> None:
    if os.geteuid() != 0:
        raise ImageError("the base is unpacked and entered as root: run this as root")
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
    """The base's identity in buildah's storage; empty where there is none."""
    return _buildah("images", "--quiet", "--filter", f"reference={BASE}").strip()


def _make_base(scratch: Path) -> None:
    """Debian with what the build needs, as the image BASE."""
    _say(f"making the base, {BASE}, with debootstrap")
    root = scratch / "base"
    _run("debootstrap", "--variant=minbase", f"--include={INCLUDED}", SUITE, str(root), _mirror())
    for sources in (*Path("/etc/apt").glob("sources.list"), *Path("/etc/apt/sources.list.d").iterdir()):
        shutil.copy(sources, root / sources.relative_to("/"))
    for step in ("update", "-y upgrade", "clean"):
        _run("chroot", str(root), "apt-get", "-q", *step.split())
    containerfile = scratch / "Base"
    containerfile.write_text("FROM scratch\nCOPY . /\n")
    _buildah("bud", f"--tag={BASE}", f"--file={containerfile}", str(root))


def _mirror() -> str:
    """Where apt on this machine gets the suite from."""
    listed = _run(
        *("apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages")
    ).splitlines()
    mirrors = [line.split()[1] for line in listed if line.split()[0] == SUITE]
    if not mirrors:
        raise ImageError(f"apt on this machine knows no mirror of Debian {SUITE}: add one to its sources")
    return mirrors[0]


def _wheels() -> Path:
    """A directory with the wheels of the lock, and no others."""
    lock = HERE / "requirements.lock"
    target = cache() / f"wheels-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    if not target.exists():
        _say("fetching the wheels of the locked dependencies")
        with tempfile.TemporaryDirectory(dir=cache(), prefix=".wheels-") as scratch:
            fetched = Path(scratch) / "wheels"
            _pip(
                *("download", "--require-hashes", "--only-binary=:all:", "--python-version=3.11"),
                *(f"--dest={fetched}", f"--requirement={lock}"),
            )
            fetched.replace(target)
    return target


def _forget(kept: Path) -> None:
    """Removes images that nobody has asked for since yesterday."""
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
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
        raise ImageError(f"`{' '.join(command)}` said:\n{last}")
    return done.stdout


def _say(text: str) -> None:
    sys.stderr.write(f"[image] {text} …\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
