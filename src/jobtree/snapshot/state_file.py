"""Reads and writes the state file: a cluster in one YAML file, with its clock and its policy.

A read changes nothing. A write holds a lock file and replaces the file in one step: after a crash, on a full
disk or with a second command the file has either its old or its new text.
"""

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

from jobtree.api.documents.document_stream import Document, dump_yaml, read_documents
from jobtree.api.kinds.policy import (
    Policy,
    clock_document,
    is_sim_document,
    parse_beacon_values,
    parse_clock,
    parse_policy,
)
from jobtree.api.schema.problems import InputError, JobtreeError
from jobtree.archive.archive_directory import ArchiveDirectory, ArchiveError
from jobtree.snapshot.cluster import Cluster
from jobtree.snapshot.lottery_key_file import key_path, load_key

C = TypeVar("C", bound=Cluster)


class StateFileError(JobtreeError):
    """The state file cannot be read, locked or replaced; the message says what to do."""

    exit_code = 74


class MissingStateFileError(StateFileError):
    """The file does not exist."""

    exit_code = 3


class LockedStateFileError(StateFileError):
    """Another command is changing the file."""

    exit_code = 4


class ExistingStateFileError(StateFileError):
    """The file exists and was not to be replaced."""

    exit_code = 4


class StateFile(Generic[C]):
    def __init__(self, path: str, cluster_class: type[C]) -> None:
        self.path = Path(path)
        self._cluster_class = cluster_class
        self._target = self.path.resolve()  # a symbolic link stays: its target is locked and replaced

    def stamp(self) -> tuple[int, int, int] | None:
        """Returns what tells this file from one that replaced it; None if there is no file."""
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    def read(self, *, checked: bool = True) -> C:
        """Returns the cluster in the file, planned at the instant of its clock. The file does not change."""
        return parse_cluster(self._text(), str(self.path), self._cluster_class, checked=checked)

    @contextmanager
    def edit(self, archive: ArchiveDirectory | None = None) -> Iterator[C]:
        """Locks the file and yields its cluster, which is saved if the block ends without an exception.

        With an archive, closed leases that are old enough are archived before the file without them is saved.
        """
        if not self.path.exists():
            raise self._missing()
        with self._locked():
            cluster = parse_cluster(self._text(), str(self.path), self._cluster_class)
            cluster.archiving = archive is not None
            yield cluster
            if archive is not None:
                self._archive(cluster, archive)
            self._replace(write_cluster(cluster))

    def _archive(self, cluster: Cluster, archive: ArchiveDirectory) -> None:
        try:
            archive.add(cluster.retired)
        except ArchiveError as error:
            raise StateFileError(f"{error}; {self.path} stays as it was, with all its leases") from None

    def create(self, text: str, *, replace: bool = False) -> None:
        """Writes a first state file. A file that exists is only replaced with ``replace``."""
        if self.path.exists() and not replace:
            raise ExistingStateFileError(f"{self.path} already exists: choose another name, or add --force")
        with self._locked():
            self._replace(text)

    def _text(self) -> str:
        try:
            return self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise self._missing() from None
        except UnicodeDecodeError as error:
            byte = f"byte {error.start} is 0x{error.object[error.start]:02x}"
            raise StateFileError(f"cannot read {self.path}: it is not UTF-8: {byte}") from None
        except OSError as error:
            raise StateFileError(f"cannot read {self.path}: {error.strerror}") from None

    def _missing(self) -> MissingStateFileError:
        return MissingStateFileError(
            f"there is no state file {self.path}: 'kubectl runs init {self.path}' writes one to start from"
        )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = self._target.with_name(self._target.name + ".lock")
        try:
            descriptor = os.open(lock, os.O_CREAT | os.O_RDWR, 0o644)
        except OSError as error:
            raise StateFileError(f"cannot lock {self.path}: {error}") from None
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
        """Writes a file beside it, flushes that to disk, and renames it."""
        new = None
        try:
            with tempfile.NamedTemporaryFile(
                "w", encoding="utf-8", dir=self._target.parent, prefix=f".{self._target.name}.", delete=False
            ) as file:
                new = Path(file.name)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if self._target.exists():
                new.chmod(self._target.stat().st_mode & 0o777)
            else:
                new.chmod(0o644)
            new.replace(self._target)
        except OSError as error:
            if new is not None:
                new.unlink(missing_ok=True)
            raise StateFileError(
                f"cannot save {self.path}, which stays as it was: {error.strerror}"
            ) from None


def parse_cluster(text: str, source: str, cluster_class: type[C], *, checked: bool = True) -> C:
    """Returns the cluster in the text of a state file. Raises InputError."""
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
    at = time.time_ns() // 1_000_000 if now is None else now
    cluster = cluster_class(at, policy, key=key, checked=checked)
    if policy is not None:
        cluster.policy_document = policy_document
    cluster.world.beacon_values = values
    cluster.beacon_documents = beacons
    cluster.load(documents)
    return cluster


def write_cluster(cluster: Cluster) -> str:
    """Returns the text of a state file: its clock, its policy, the beacon values, then all objects."""
    head = [clock_document(cluster.now)]
    if cluster.policy_document is not None:
        head.append(cluster.policy_document)
    head += cluster.beacon_documents
    return dump_yaml([*head, *cluster.documents()])
