"""The state file: a cluster that you can hold in your hand (SPEC section 11).

Reading never writes. Writing holds a lock beside the file and replaces the file in one step, so that a
crash, a full disk or a second command leaves the old file or the new one, never half of either.
"""

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jobtree.api.documents.document_stream import Document, dump_yaml, read_documents
from jobtree.api.kinds.policy import (
    Policy,
    clock_document,
    is_sim_document,
    parse_beacon_values,
    parse_clock,
    parse_policy,
)
from jobtree.api.schema.problems import InputError
from jobtree.archive.archive_directory import ArchiveDirectory, ArchiveError
from jobtree.snapshot.cluster import Cluster
from jobtree.snapshot.lottery_key_file import key_path, load_key


class StateFileError(Exception):
    """The state file cannot be read, locked or replaced; the message says what to do."""


class MissingStateFileError(StateFileError):
    """There is no such file."""


class LockedStateFileError(StateFileError):
    """Another command is about to change the file."""


class ExistingStateFileError(StateFileError):
    """The file is there already, and nobody asked to replace it."""


class StateFile:
    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self._real = self.path.resolve()  # what a symbolic link leads to is locked and replaced, not the link

    def read(self, *, checked: bool = True) -> Cluster:
        """The cluster as the file tells it, planned up to its clock. The file stays as it is."""
        return parse_cluster(self._text(), str(self.path), checked=checked)

    @contextmanager
    def edit(self, archive: ArchiveDirectory | None = None) -> Iterator[Cluster]:
        """The cluster, locked for a change; saved if the block ends without an exception.

        With an archive, closed leases that are old enough are in it before the file that lacks them is saved.
        """
        if not self.path.exists():
            raise self._missing()
        with self._locked():
            cluster = parse_cluster(self._text(), str(self.path))
            cluster.archiving = archive is not None
            yield cluster
            if archive is not None:
                self._archive(cluster, archive)
            self._replace(write_cluster(cluster))

    def _archive(self, cluster: Cluster, archive: ArchiveDirectory) -> None:
        try:
            archive.add(cluster.retired)
        except ArchiveError as broken:
            raise StateFileError(f"{broken}; {self.path} stays as it was, with all its leases") from None

    def create(self, text: str, *, replace: bool = False) -> None:
        """Write a first state file; one that is there already is only replaced if asked to."""
        if self.path.exists() and not replace:
            raise ExistingStateFileError(f"{self.path} is there already: choose another name, or add --force")
        with self._locked():
            self._replace(text)

    def _text(self) -> str:
        try:
            return self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise self._missing() from None
        except (OSError, UnicodeDecodeError) as broken:
            raise StateFileError(f"cannot read {self.path}: {broken}") from None

    def _missing(self) -> MissingStateFileError:
        return MissingStateFileError(
            f"there is no state file {self.path}: 'kubectl runs init {self.path}' writes one to start from"
        )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = self._real.with_name(self._real.name + ".lock")
        try:
            descriptor = os.open(lock, os.O_CREAT | os.O_RDWR, 0o644)
        except OSError as broken:
            raise StateFileError(f"cannot lock {self.path}: {broken}") from None
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LockedStateFileError(
                    f"{self.path} is locked by another command: wait until it is done, then try again"
                ) from None
            yield
        finally:
            os.close(descriptor)

    def _replace(self, text: str) -> None:
        """Write beside the file, flush to disk, then take its place."""
        new = None
        try:
            with tempfile.NamedTemporaryFile(
                "w", encoding="utf-8", dir=self._real.parent, prefix=f".{self._real.name}.", delete=False
            ) as file:
                new = Path(file.name)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if self._real.exists():
                new.chmod(self._real.stat().st_mode & 0o777)
            else:
                new.chmod(0o644)
            new.replace(self._real)
        except OSError as broken:
            if new is not None:
                new.unlink(missing_ok=True)
            raise StateFileError(
                f"cannot save {self.path}, which stays as it was: {broken.strerror}"
            ) from None


def parse_cluster(text: str, source: str, *, checked: bool = True) -> Cluster:
    """The cluster of a state file's text. Raises InputError."""
    documents: list[Document] = []
    now: int | None = None
    policy: Policy | None = None
    values: dict[tuple[str, int], str] = {}
    beacons = []
    for document in read_documents(text, source):
        if not is_sim_document(document.body):
            documents.append(document)
        elif document.body.get("kind") == "Clock":
            if now is not None:
                raise InputError(document.where, ["a state file has one Clock"])
            now = parse_clock(document.body, document.where)
        elif document.body.get("kind") == "BeaconValues":
            values |= parse_beacon_values(document.body, document.where)
            beacons.append(document.body)
        else:
            if policy is not None:
                raise InputError(document.where, ["a state file has one Policy"])
            policy = parse_policy(document.body, document.where)
            policy_document = document.body
    key = load_key(key_path())
    cluster = Cluster(time.time_ns() // 1_000_000 if now is None else now, policy, key=key, checked=checked)
    if policy is not None:
        cluster.policy_document = policy_document
    cluster.world.beacon_values = values
    cluster.beacon_documents = beacons
    cluster.load(documents)
    return cluster


def write_cluster(cluster: Cluster) -> str:
    """The text of a state file: its clock, its policy, then all objects."""
    head = [clock_document(cluster.now)]
    if cluster.policy_document is not None:
        head.append(cluster.policy_document)
    head += cluster.beacon_documents
    return dump_yaml([*head, *cluster.documents()])
