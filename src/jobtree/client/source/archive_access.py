"""Reads the archive: from a directory, or from the manager of a live cluster.

The manager is reached through the API server with the user's own rights: get on ``services/proxy`` of its
Service, which the Role ``jobtree-archive-reader`` grants. Only the leading manager has the archive. The API
server picks one of the managers for each request, so requests are repeated until the leader answers.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from jobtree.api.kinds.carried_sums import CarriedUses
from jobtree.api.schema.quantities import format_micro
from jobtree.archive.archive_directory import ArchiveDirectory, ArchiveError
from jobtree.archive.archive_reader import Files, read_archive
from jobtree.archive.day_file import ObjectBody
from jobtree.client.errors import NotFoundError
from jobtree.client.source.lease_entries import LeaseEntry, lease_entry
from jobtree.client.source.ledger_period import FOREVER
from jobtree.core import CLASSES, EnvelopeKey, reported_amount, sums_of, usage_class
from jobtree.kube.http import api_requests
from jobtree.kube.http.api_errors import FORBIDDEN, NOT_FOUND, KubeError, StatusError
from jobtree.kube.http.blocking_client import Client
from jobtree.kube.installation import ARCHIVE_ELSEWHERE, ARCHIVE_PATH, NAMESPACE, SERVICE_PORT
from jobtree.snapshot.cluster import Cluster

TRIES = 24  # with two managers, each request reaches the leader with probability 1/2
INCOMPLETE = "the answer is incomplete: archived leases are missing from it"
IN_ARCHIVE = (
    "note: leases that ended long ago are in the archive: --since TIME reads it (for a state file, also give "
    "--archive DIR)"
)
READER = (
    f"this requires 'get' on services/proxy in {NAMESPACE}: ask an administrator to bind you to the Role "
    "jobtree-archive-reader there, or to give you a copy of the archive for --archive DIR"
)


class NoArchiveError(ArchiveError):
    """Raised if the cluster keeps no archive."""


class ManagerArchive:
    """The archive files that the manager of a live cluster serves."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def names(self) -> list[str]:
        return msgspec.json.decode(self.fetch(""), type=list[str])

    def fetch(self, name: str) -> bytes:
        target = api_requests.service_proxy(NAMESPACE, SERVICE_PORT, f"{ARCHIVE_PATH}/{name}")
        for _ in range(TRIES):
            try:
                return self._client.transport.send(target)
            except StatusError as refused:
                error: KubeError = refused
                if ARCHIVE_ELSEWHERE not in refused.message:
                    break
            except KubeError as failure:
                error = failure
                break
        raise self._archive_error(error)

    @staticmethod
    def _archive_error(error: KubeError) -> ArchiveError:
        code = error.code if isinstance(error, StatusError) else 0
        if code == NOT_FOUND:
            return NoArchiveError("the cluster's manager keeps no archive")
        hint = f"\n  {READER}" if code == FORBIDDEN else ""
        return ArchiveError(f"the cluster's archive cannot be read: {error}{hint}")


class ArchivedLeases(NamedTuple):
    """Leases from the archive, and which parts of it could not be read."""

    bodies: list[ObjectBody]
    problems: tuple[str, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        return (*self.problems, INCOMPLETE) if self.problems else ()


NOTHING_ARCHIVED = ArchivedLeases([], ())


def archived_since(files: Files, since: int) -> ArchivedLeases:
    """Returns archived leases that may overlap the time from this instant on."""
    contents = read_archive(files, None if since == -FOREVER else since)
    return ArchivedLeases(contents.bodies, tuple(contents.problems))


def open_directory(directory: str) -> ArchiveDirectory:
    archive = ArchiveDirectory(directory)
    if not archive.path.is_dir():
        raise NotFoundError(f"--archive {directory}: there is no such directory", "directory", directory)
    return archive


def carries_anything(cluster: Cluster) -> bool:
    return any(budget.status.carried is not None for budget in cluster.world.budgets.budgets.values())


def audit(cluster: Cluster, directory: str) -> list[tuple[str, str]]:
    """Returns all that is wrong with an archive: altered files, or else sums that differ (I10)."""
    contents = read_archive(open_directory(directory))
    problems = [("Archive", problem) for problem in contents.problems]
    return problems or [
        ("I10", message) for message in disagreements(cluster, list(map(lease_entry, contents.bodies)))
    ]


def disagreements(cluster: Cluster, archive: list[LeaseEntry]) -> Iterator[str]:
    """Reports envelopes whose carried usage differs from the sum of their archived leases (I10)."""
    archived_sums: dict[EnvelopeKey, dict[str, int]] = {}
    leaving = cluster.world.budgets.archived_leases
    for lease, end, _, _ in archive:
        uncarried = ("Lease", "", lease.name) in cluster.objects
        if end is not None and (lease.name in leaving.get(lease.payer[0], ()) or not uncarried):
            sums = archived_sums.setdefault(lease.payer, dict.fromkeys(CLASSES, 0))
            sums[usage_class(lease)] += reported_amount(lease) * (end - lease.start)
    for name, budget in sorted(cluster.world.budgets.budgets.items()):
        carried = {
            (name, envelope.name): sums_of(envelope)
            for envelope in (budget.status.carried or CarriedUses()).envelopes
        }
        keys = {key for key in archived_sums if key[0] == name}
        for key in sorted(carried.keys() | keys):
            for use in CLASSES:
                have, need = carried.get(key, {}).get(use, 0), archived_sums.get(key, {}).get(use, 0)
                if have != need:
                    yield (
                        f"{'/'.join(key)} carries {format_micro(have)} GPU-seconds ({use}), but its "
                        f"archived leases add up to {format_micro(need)}"
                    )
