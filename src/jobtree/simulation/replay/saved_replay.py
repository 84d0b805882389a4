"""Saves an interrupted replay in a file, so that it continues to the same report.

The file has the whole simulation between two instants, and a digest of its setup: a replay of another setup
refuses the file. Loading creates only values of Jobtree's classes and plain containers, so a file cannot run
code.
"""

import io
import os
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path

from jobtree.simulation.replay.engine import Simulation

HEAD = b"jobtree replay 2\n"
PLAIN = {
    ("array", "_array_reconstructor"),
    ("array", "array"),
    ("builtins", "frozenset"),
    ("builtins", "range"),
    ("builtins", "set"),
    ("collections", "Counter"),
    ("collections", "deque"),
    ("copyreg", "_reconstructor"),
    ("builtins", "object"),
    ("msgspec._utils", "rebuild"),
}


class SavedReplayError(Exception):
    """The file cannot be used; the message gives advice."""


class ReplayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        value: object = None
        if (module, name) in PLAIN or module.startswith("jobtree."):
            value = super().find_class(module, name)
        if (module, name) not in PLAIN and not isinstance(value, type):
            raise pickle.UnpicklingError(f"{module}.{name} has no place in a saved replay")
        return value


def save(path: Path, simulation: Simulation, digest: str) -> None:
    """Writes a new file, then renames it to the old name. Raises SavedReplayError."""
    new = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            new = Path(file.name)
            file.write(HEAD + digest.encode() + b"\n")
            pickle.dump(simulation, file, protocol=5)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as broken:
        raise SavedReplayError(f"cannot save the replay in {path}: {broken.strerror}") from None
    finally:
        if new is not None:
            new.unlink(missing_ok=True)  # a disk that is full, or a second Ctrl-C: no half file is left


def load(path: Path, digest: str) -> Simulation | None:
    """Returns the replay in a file, or None if there is no file. Raises SavedReplayError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as broken:
        raise SavedReplayError(f"cannot read {path}: {broken.strerror}") from None
    if not data.startswith(HEAD):
        raise SavedReplayError(
            f"{path} is not a saved replay: name another file, or remove it to start again"
        )
    saved_digest, _, rest = data[len(HEAD) :].partition(b"\n")
    if saved_digest != digest.encode():
        raise SavedReplayError(
            f"{path} is a replay of something else (another trace, fleet, budget, policy or option): "
            "name another file, or remove it to start again"
        )
    try:
        simulation = ReplayUnpickler(io.BytesIO(rest)).load()
    except Exception as broken:  # noqa: BLE001  bytes that were changed can break anywhere
        raise SavedReplayError(f"{path} is damaged ({broken}): remove it to start again") from None
    assert isinstance(simulation, Simulation)
    return simulation


def run(simulation: Simulation, watch: Callable[[Simulation], bool] = lambda _: False) -> bool:
    """Replays to the end; returns False if ``watch``, called after every instant, stopped it before."""
    while simulation.step():
        if watch(simulation):
            return False
    return True
