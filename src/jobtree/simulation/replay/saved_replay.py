"""A replay that was interrupted, kept in a file, so that it goes on to the very same report.

All of the simulation is kept as it stands between two instants. The file says what was replayed, and a
replay of anything else refuses it. Reading makes values of Jobtree's own classes and plain containers only,
so a file from somebody else can be wrong but cannot run a program.
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
    """The file cannot be used; the message says what to do."""


class ReplayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        value: object = None
        if (module, name) in PLAIN or module.startswith("jobtree."):
            value = super().find_class(module, name)
        if (module, name) not in PLAIN and not isinstance(value, type):
            raise pickle.UnpicklingError(f"{module}.{name} has no place in a saved replay")
        return value


def save(path: Path, simulation: Simulation, digest: str) -> None:
    """Write beside the file, then take its place. Raises SavedReplayError."""
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
    """The replay in that file, or None where there is no file. Raises SavedReplayError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as broken:
        raise SavedReplayError(f"cannot read {path}: {broken.strerror}") from None
    if not data.startswith(HEAD):
        raise SavedReplayError(f"{path} is not a saved replay: name another file, or remove it to begin anew")
    saved_digest, _, rest = data[len(HEAD) :].partition(b"\n")
    if saved_digest != digest.encode():
        raise SavedReplayError(
            f"{path} is a replay of something else (another trace, fleet, budget, policy or option): "
            "name another file, or remove it to begin anew"
        )
    try:
        simulation = ReplayUnpickler(io.BytesIO(rest)).load()
    except Exception as broken:  # noqa: BLE001  bytes that were changed can break anywhere
        raise SavedReplayError(f"{path} is damaged ({broken}): remove it to begin anew") from None
    assert isinstance(simulation, Simulation)
    return simulation


def run(simulation: Simulation, watch: Callable[[Simulation], bool] = lambda _: False) -> bool:
    """Replay to the end; False where the watcher, asked after every instant, said to stop before."""
    while simulation.step():
        if watch(simulation):
            return False
    return True
