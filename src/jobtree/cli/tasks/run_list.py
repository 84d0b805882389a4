"""Implements ``state``: lists Runs once, or again after every change."""

import time

import click
import msgspec

from jobtree.api.schema.quantities import HOUR, format_time
from jobtree.cli.shell.object_output import print_objects
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.source.session import find_run, read_cluster
from jobtree.cli.views.runs.run_table import print_runs
from jobtree.client.source.lease_entries import belongs_to
from jobtree.client.source.owner_names import refuse_unknown_owner
from jobtree.core import FINISHED, RunState, phase_of
from jobtree.messages.wording import counted_noun
from jobtree.snapshot.cluster import Cluster

HIDDEN_AFTER = 24 * HOUR  # finished Runs are not listed any longer, unless they are asked for
POLL_SECONDS = 2.0


class RunFilter(msgspec.Struct, frozen=True):
    """Which Runs to list; empty names and phases select all."""

    names: tuple[str, ...]
    namespace: str | None  # None: all
    owner: str | None
    phases: frozenset[str]
    finished: bool  # whether those are listed that finished long ago

    def selects(self, cluster: Cluster, run: RunState) -> bool:
        return (
            self.namespace in (None, run.key[0])
            and (self.owner is None or belongs_to(run.owner, self.owner))
            and (not self.phases or phase_of(cluster.world, run) in self.phases)
        )


def list_runs(settings: CommandOptions, wanted: RunFilter, *, watching: bool) -> None:
    cluster = read_cluster(settings)
    refuse_unknown_owner(cluster, wanted.owner)
    listed = print_list(settings, cluster, wanted, None)
    while watching:
        time.sleep(POLL_SECONDS)
        cluster = read_cluster(settings)
        listed = print_list(settings, cluster, wanted, listed)


def print_list(
    settings: CommandOptions, cluster: Cluster, wanted: RunFilter, before: object | None
) -> object:
    """Prints the Runs unless they are as they were listed before; returns what was listed."""
    runs = selected(settings, cluster, wanted)
    shown = [run for run in runs if wanted.finished or not finished_long_ago(cluster, run)]
    present = [(run.key, run.phase, run.width, run.verdict, run.promise) for run in shown]
    if present == before:
        return present
    if before is not None and settings.human:
        click.echo(f"\n{format_time(cluster.now)}")
    if not settings.human:
        cluster.documents()
        bodies = (cluster.objects.get(("Run", *run.key)) for run in shown)
        print_objects(settings, [body for body in bodies if body])
        return present
    if not runs and wanted.namespace:
        click.echo(f"no Runs in namespace {wanted.namespace}: --all lists the Runs of all namespaces")
    else:
        print_runs(settings, cluster.world, shown)
    if hidden := len(runs) - len(shown):
        click.echo(
            f"{counted_noun(hidden, 'Run')} finished more than a day ago: --finished lists all", err=True
        )
    return present


def selected(settings: CommandOptions, cluster: Cluster, wanted: RunFilter) -> list[RunState]:
    """Returns the Runs to list, by name."""
    if wanted.names:
        keys = dict.fromkeys(find_run(cluster, name, settings) for name in wanted.names)
        return [cluster.world.runs[key] for key in keys]
    return [run for _, run in sorted(cluster.world.runs.items()) if wanted.selects(cluster, run)]


def finished_long_ago(cluster: Cluster, run: RunState) -> bool:
    return run.phase in FINISHED and cluster.now - run.phase_at > HIDDEN_AFTER
