"""Copies Python and everything that it needs to run to a directory: ``assemble.py ROOT``.

This runs inside the build, on Debian. The directory already has the packages of Jobtree. The script adds the
interpreter, the standard library without its tests and tkinter, every shared library that any of these is
linked with, and the few files of /etc that the C library reads. It also compiles all modules, since the image
is read-only when it runs.
"""

import compileall
import os
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

INTERPRETER = Path("/usr/bin/python3.11")
LIBRARY = Path("/usr/lib/python3.11")
EXCLUDED = shutil.ignore_patterns(
    *(
        "__pycache__",
        "test",
        "tests",
        "idlelib",
        "tkinter",
        "turtledemo",
        "ensurepip",
        "lib2to3",
        "pydoc_data",
    ),
    *("config-*", "_curses*", "readline*", "_sqlite3*", "_dbm*", "_gdbm*", "nis.*", "EXTERNALLY-MANAGED"),
)
AUTHORITIES = "etc/ssl/certs/ca-certificates.crt"
ETC = {
    "passwd": "root:x:0:0:root:/:/nologin\njobtree:x:65532:65532:jobtree:/tmp:/nologin\n",
    "group": "root:x:0:\njobtree:x:65532:\n",
    "nsswitch.conf": "hosts: files dns\n",
}


def main(root: Path) -> None:
    for name in ("lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(f"usr/{name}")
    (root / "usr/bin").mkdir()
    shutil.copy2(INTERPRETER, root / "usr/bin")
    (root / "usr/bin/python3").symlink_to(INTERPRETER.name)
    shutil.copytree(LIBRARY, root / LIBRARY.relative_to("/"), ignore=EXCLUDED)
    for library in libraries(root):
        target = root / library.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(library, target)
    (root / "etc").mkdir()
    for name, text in ETC.items():
        (root / "etc" / name).write_text(text)
    (root / AUTHORITIES).parent.mkdir(parents=True)
    shutil.copy2(Path("/") / AUTHORITIES, root / AUTHORITIES)  # for a public beacon with https
    (root / "tmp").mkdir(mode=0o1777)
    (root / "tmp").chmod(0o1777)
    compile_all(root)


def libraries(root: Path) -> Iterator[Path]:
    """Yields the shared libraries of the interpreter and of all extension modules, by the paths they use."""
    binaries = [root / "usr/bin" / INTERPRETER.name, *root.rglob("*.so")]
    output = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=True).stdout
    paths = set()
    for line in output.splitlines():
        words = line.split()
        assert "not found" not in line, f"a library is missing in the base: {line}"
        if len(words) > 1 and words[-1].startswith("(0x") and "/" in words[-2]:
            paths.add(words[-2])
    # Libraries below root come with a wheel; the others are Debian's, whose /lib is /usr/lib.
    yield from (Path(os.path.normpath(path)) for path in sorted(paths) if not path.startswith(str(root)))


def compile_all(root: Path) -> None:
    compiled = compileall.compile_dir(
        root,
        stripdir=str(root),
        quiet=1,
        workers=0,
        maxlevels=20,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    assert compiled, "a module could not be compiled"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
