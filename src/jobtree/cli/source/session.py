"""Opens the cluster that a command works on, and finds the objects that its arguments name."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jobtree.api.schema.near_names import suggestion
from jobtree.api.schema.object_meta import GROUP
from jobtree.archive.archive_directory import ArchiveDirectory
from jobtree.cli.shell.command_errors import CommandError, Exit
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.shell.wording import joined_list
from jobtree.core import RunKey
from jobtree.snapshot.cluster import BrokenInvariantError, Cluster
from jobtree.snapshot.lottery_key_file import KeyFileError
from jobtree.snapshot.state_file import (
    ExistingStateFileError,
    LockedStateFileError,
    MissingStateFileError,
    StateFile,
    StateFileError,
)

if TYPE_CHECKING:
    from jobtree.simulation.cluster.simulated_cluster import SimulatedCluster

NAME_PREFIX = f"run.{GROUP}/"
LISTS = {
    "Run": "'kubectl runs state --all' lists all Runs",
    "Reservation": "'kubectl runs reservations --all' lists all Reservations",
}


def read_cluster(settings: CommandOptions, *, checked: bool = True, pods: bool = False) -> Cluster:
    """Returns the cluster for reading; of a live cluster, pods are listed only with ``pods``."""
    if settings.live:
        from jobtree.cli.source.live_cluster import Live

        return Live(settings).cluster(plan=False, pods=pods, checked=checked)
    path = settings.state_path
    with translated(path):
        return state_file(path).read(checked=checked)


@contextmanager
def edit(settings: CommandOptions, *, save: bool = True) -> Iterator[Cluster]:
    """Opens the cluster for changes. Without ``save`` the file is not written."""
    if settings.live and not save:
        from jobtree.cli.source.live_cluster import Live

        yield Live(settings).cluster(plan=True)
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
    """Translates errors of the state file and the lottery key to exit codes."""
    try:
        yield
    except MissingStateFileError as error:
        raise CommandError(Exit.NOT_FOUND, str(error)) from None
    except (LockedStateFileError, ExistingStateFileError) as error:
        raise CommandError(Exit.CONFLICT, str(error)) from None
    except (StateFileError, KeyFileError) as error:
        raise CommandError(Exit.IO, str(error)) from None
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
    """Returns the key that NAME or NAMESPACE/NAME means; raises CommandError unless exactly one matches."""
    wanted = text.removeprefix(NAME_PREFIX)
    namespace, slash, name = wanted.rpartition("/")
    if not slash and settings.namespace:
        namespace = settings.namespace
    matches = [key for key in keys if key[1] == name and namespace in ("", key[0])]
    if len(matches) > 1:
        matches = _in_default_namespace(matches, settings)
    if len(matches) > 1:
        spelled = joined_list(["/".join(key) for key in sorted(matches)], most=8)
        raise CommandError(Exit.USAGE, f"several {kind}s are named {name}: choose one of {spelled}")
    if not matches:
        raise CommandError(Exit.NOT_FOUND, _not_found_message(wanted, keys, kind))
    return matches[0]


def _in_default_namespace(keys: list[RunKey], settings: CommandOptions) -> list[RunKey]:
    """Prefers keys of the context's namespace on a live cluster."""
    if not settings.live:
        return keys
    from jobtree.cli.source.live_cluster import default_namespace

    namespace = default_namespace(settings)
    return [key for key in keys if key[0] == namespace] or keys


def _not_found_message(wanted: str, keys: list[RunKey], kind: str) -> str:
    elsewhere = ["/".join(key) for key in keys if key[1] == wanted.rpartition("/")[2]]
    hint = f"did you mean {elsewhere[0]}?" if elsewhere else suggestion(wanted, [key[1] for key in keys])
    return f"there is no {kind} {wanted}: {hint or LISTS[kind]}"


def find_node(cluster: Cluster, name: str) -> str:
    """Returns the name of a node; raises CommandError if the cluster does not have it."""
    name = name.removeprefix("node/")
    if ("Node", "", name) not in cluster.objects:
        names = [key[2] for key, _ in cluster.objects.of("Node")]
        hint = suggestion(name, names) or f"the cluster has {joined_list(sorted(names)) or 'no nodes'}"
        raise CommandError(Exit.NOT_FOUND, f"there is no node {name}: {hint}")
    return name
