"""The archive that a command reads: a directory, or on a live cluster what the manager serves of its own.

The manager is reached through the API server, with the user's own rights: get on ``services/proxy`` of its
Service, which the Role ``jobtree-archive-reader`` gives. Of several managers the one that leads has the
archive; the others say so, and the server picks one of them every time: it is asked again until it answers.
"""

from collections.abc import Iterator

import click
import msgspec

from jobtree.api.kinds.carried_sums import CarriedUses
from jobtree.api.schema.quantities import format_micro
from jobtree.archive.archive_directory import ArchiveDirectory, ArchiveError
from jobtree.archive.archive_reader import Files, read_archive
from jobtree.archive.day_file import ObjectBody
from jobtree.cli.shell.command_errors import CommandError, Exit
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.source.lease_entries import LeaseEntry, lease_entry
from jobtree.cli.source.ledger_period import FOREVER, Period
from jobtree.core import CLASSES, EnvelopeKey, reported_amount, sums_of, usage_class
from jobtree.kube.http import api_requests
from jobtree.kube.http.api_errors import FORBIDDEN, NOT_FOUND, KubeError, StatusError
from jobtree.kube.http.blocking_client import Client
from jobtree.kube.installation import ARCHIVE_ELSEWHERE, ARCHIVE_PATH, NAMESPACE, SERVICE_PORT
from jobtree.snapshot.cluster import Cluster

TRIES = 24  # of two managers one leads: a coin that falls wrong so often is no coin
INCOMPLETE = "the answer is incomplete: archived leases are missing from it"
IN_ARCHIVE = (
    "note: leases that ended long ago are in the archive, which --since TIME reads (of a state file, with "
    "--archive DIR)"
)
READER = (
    f"reading it takes 'get' on services/proxy in {NAMESPACE}: ask an administrator to bind you to the Role "
    "jobtree-archive-reader there, or to give you a copy of the archive for --archive DIR"
)


class NoArchiveError(ArchiveError):
    """The cluster keeps no archive."""


class ManagerArchive:
    """The files of the manager's archive."""

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
                trouble: KubeError = refused
                if ARCHIVE_ELSEWHERE not in refused.message:
                    break
            except KubeError as broken:
                trouble = broken
                break
        raise self._explained(trouble)

    @staticmethod
    def _explained(trouble: KubeError) -> ArchiveError:
        code = trouble.code if isinstance(trouble, StatusError) else 0
        if code == NOT_FOUND:
            return NoArchiveError("the cluster's manager keeps no archive")
        hint = f"\n  {READER}" if code == FORBIDDEN else ""
        return ArchiveError(f"the cluster's archive cannot be read: {trouble}{hint}")


def archived(
    settings: CommandOptions, cluster: Cluster, period: Period, directory: str | None
) -> tuple[list[ObjectBody], int]:
    """Archived leases that may reach into the period, and the exit code: what cannot be read is told."""
    files = _files(settings, cluster, directory)
    if files is None:
        return [], Exit.OK
    found = read_archive(files, None if period.since == -FOREVER else period.since)
    for problem in (*found.problems, INCOMPLETE) if found.problems else ():
        click.echo(f"warning: {problem}", err=True)
    return found.bodies, Exit.NO if found.problems else Exit.OK


def _files(settings: CommandOptions, cluster: Cluster, directory: str | None) -> Files | None:
    if directory is not None:
        return open_directory(directory)
    if not settings.live or not carries_anything(cluster):
        return None  # nothing has left the cluster: nobody needs a right to ask for it
    from jobtree.cli.source.live_cluster import Live

    return ManagerArchive(Live(settings).client)


def open_directory(directory: str) -> ArchiveDirectory:
    found = ArchiveDirectory(directory)
    if not found.path.is_dir():
        raise CommandError(Exit.NOT_FOUND, f"--archive {directory}: there is no such directory")
    return found


def carries_anything(cluster: Cluster) -> bool:
    return any(budget.status.carried is not None for budget in cluster.world.budgets.budgets.values())


def audit(cluster: Cluster, directory: str) -> list[tuple[str, str]]:
    """All that is wrong with an archive: files that are not what was written, sums that differ (I10)."""
    found = read_archive(open_directory(directory))
    broken = [("Archive", problem) for problem in found.problems]
    return broken or [
        ("I10", message) for message in disagreements(cluster, list(map(lease_entry, found.bodies)))
    ]


def disagreements(cluster: Cluster, archive: list[LeaseEntry]) -> Iterator[str]:
    """Envelopes that carry another sum than their leases in the archive have (I10)."""
    filed: dict[EnvelopeKey, dict[str, int]] = {}
    leaving = cluster.world.budgets.archived_leases
    for lease, end, _, _ in archive:
        uncarried = ("Lease", "", lease.name) in cluster.objects
        if end is not None and (lease.name in leaving.get(lease.payer[0], ()) or not uncarried):
            sums = filed.setdefault(lease.payer, dict.fromkeys(CLASSES, 0))
            sums[usage_class(lease)] += reported_amount(lease) * (end - lease.start)
    for name, budget in sorted(cluster.world.budgets.budgets.items()):
        told = (budget.status.carried or CarriedUses()).envelopes
        carried = {(name, one.name): sums_of(one) for one in told}
        keys = {key for key in filed if key[0] == name}
        for key in sorted(carried.keys() | keys):
            for use in CLASSES:
                have, need = carried.get(key, {}).get(use, 0), filed.get(key, {}).get(use, 0)
                if have != need:
                    yield (
                        f"{'/'.join(key)} carries {format_micro(have)} GPU-seconds ({use}), its leases "
                        f"in the archive have {format_micro(need)}"
                    )
