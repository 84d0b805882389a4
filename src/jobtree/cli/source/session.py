"""Opens the cluster that a command works on, and finds the objects that its arguments name."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from jobtree.api.schema.near_names import suggestion
from jobtree.archive.archive_directory import ArchiveDirectory
from jobtree.cli.shell.command_errors import CommandError, Exit, warn
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.source.name_ranges import expanded
from jobtree.client.source.name_lookup import Names
from jobtree.core import RunKey
from jobtree.messages.wording import joined_list
from jobtree.snapshot.cluster import BrokenInvariantError, Cluster
from jobtree.snapshot.state_file import StateFile

if TYPE_CHECKING:
    from jobtree.client.run import Run
    from jobtree.client.source.live_cluster import ClusterName, Live
    from jobtree.simulation.cluster.simulated_cluster import SimulatedCluster


def live_cluster(settings: CommandOptions) -> "Live":
    """Opens the live cluster that the options name; its warnings go to stderr."""
    from jobtree.client.source.live_cluster import Live

    live = Live(cluster_name(settings), warn)
    if command := click.get_current_context(silent=True):
        command.call_on_close(live.transport.close)
    return live


def library_run(settings: CommandOptions, name: str) -> "Run":
    """Returns a Run as the Python library gives it, for verbs that do with it what the library does."""
    from jobtree.client.backends.current_backend import open_backend
    from jobtree.client.run import Run

    backend = open_backend("" if settings.live else settings.state_path, cluster_name(settings))
    if command := click.get_current_context(silent=True):
        command.call_on_close(backend.close)
    return Run.of(backend.run(name), backend)


def cluster_name(settings: CommandOptions) -> "ClusterName":
    from jobtree.client.source.live_cluster import ClusterName

    return ClusterName(settings.context or "", settings.kubeconfig or "", settings.namespace or "")


def read_cluster(settings: CommandOptions, *, checked: bool = True, pods: bool = False) -> Cluster:
    """Returns the cluster for reading; of a live cluster, pods are listed only with ``pods``."""
    if settings.live:
        return live_cluster(settings).cluster(plan=False, pods=pods, checked=checked)
    path = settings.state_path
    with translated(path):
        return state_file(path).read(checked=checked)


@contextmanager
def edit(settings: CommandOptions, *, save: bool = True) -> Iterator[Cluster]:
    """Opens the cluster for changes. Without ``save`` the file is not written."""
    if settings.live and not save:
        yield live_cluster(settings).cluster(plan=True)
        return
    path = settings.state_path
    with translated(path):
        if save:
            with state_file(path).edit() as cluster:
                yield cluster
        else:
            yield state_file(path).read()


@contextmanager
def edit_simulation(settings: CommandOptions, archive: str | None = None) -> "Iterator[SimulatedCluster]":
    """The simulated cluster of a state file, to let time pass or nodes fail.

    ``archive`` is the directory that closed leases move to when they are old enough.
    """
    path = settings.state_path
    with (
        translated(path),
        state_file(path).edit(None if archive is None else ArchiveDirectory(archive)) as cluster,
    ):
        yield cluster


def state_file(path: str) -> "StateFile[SimulatedCluster]":
    from jobtree.simulation.cluster.simulated_cluster import SimulatedCluster

    return StateFile(path, SimulatedCluster)


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Reports a broken invariant as a bug, or as an edit of the state file."""
    try:
        yield
    except BrokenInvariantError as error:
        raise CommandError(Exit.BUG, _invariant_message(path, error)) from None


def _invariant_message(path: str, error: BrokenInvariantError) -> str:
    return (
        f"the change would break an invariant, so nothing was saved: {error}\n"
        f"  If {path} was edited by hand, 'kubectl runs --state {path} check' lists what is wrong in it.\n"
        f"  Otherwise this is a bug in Jobtree: please report it with this message and {path} attached."
    )


def find_run(cluster: Cluster, text: str, settings: CommandOptions) -> RunKey:
    """Returns the key of the Run that an argument names."""
    return choose(text, list(cluster.world.runs), settings)


def choose(text: str, keys: list[RunKey], settings: CommandOptions, kind: str = "Run") -> RunKey:
    """Returns the key that NAME or NAMESPACE/NAME means."""
    default = cluster_name(settings).default_namespace if settings.live else None
    return Names(settings.namespace or "", default).choose(text, keys, kind)


def find_nodes(cluster: Cluster, words: Iterable[str]) -> list[str]:
    """Returns the nodes that arguments name, alone or as the ranges that tables print: ``gpu-a-[01-16]``."""
    names = {key[2] for key, _ in cluster.objects.of("Node")}
    return list(dict.fromkeys(find_node(cluster, name) for name in expanded(words, names)))


def find_node(cluster: Cluster, name: str) -> str:
    """Returns the name of a node; raises CommandError if the cluster does not have it."""
    name = name.removeprefix("node/")
    if ("Node", "", name) not in cluster.objects:
        names = [key[2] for key, _ in cluster.objects.of("Node")]
        hint = suggestion(name, names) or f"the cluster has {joined_list(sorted(names)) or 'no nodes'}"
        raise CommandError(Exit.NOT_FOUND, f"there is no node {name}: {hint}")
    return name
