"""The cluster that a command works on, and the things in it that its arguments name."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jobtree.api.schema.object_meta import GROUP
from jobtree.archive.archive_directory import ArchiveDirectory
from jobtree.cli.shell.command_errors import CommandError, Exit
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.shell.wording import joined_list, suggestion
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
    """The cluster, to look at; a live one without its pods, unless what they use counts."""
    if settings.live:
        from jobtree.cli.source.live_cluster import Live

        return Live(settings).cluster(plan=False, pods=pods, checked=checked)
    path = settings.state_path
    with translated(path):
        return state_file(path).read(checked=checked)


@contextmanager
def edit(settings: CommandOptions, *, save: bool = True) -> Iterator[Cluster]:
    """The cluster, to change. Without ``save`` all changes are what-if and the file stays as it is."""
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
    """What can go wrong with a state file or the lottery key, as exit codes."""
    try:
        yield
    except MissingStateFileError as broken:
        raise CommandError(Exit.NOT_FOUND, str(broken)) from None
    except (LockedStateFileError, ExistingStateFileError) as broken:
        raise CommandError(Exit.CONFLICT, str(broken)) from None
    except (StateFileError, KeyFileError) as broken:
        raise CommandError(Exit.IO, str(broken)) from None
    except BrokenInvariantError as broken:
        raise CommandError(Exit.BUG, _broken(path, broken)) from None


def _broken(path: str, broken: BrokenInvariantError) -> str:
    return (
        f"the cluster would be in a state that must not be, so nothing was saved: {broken}\n"
        f"  If {path} was edited by hand, 'kubectl runs --state {path} check' lists what is wrong in it.\n"
        f"  Otherwise this is a bug in Jobtree: please report it with this message and {path} attached."
    )


def find_run(cluster: Cluster, text: str, settings: CommandOptions) -> RunKey:
    """The Run that an argument names."""
    return choose(text, list(cluster.world.runs), settings)


def choose(text: str, known: list[RunKey], settings: CommandOptions, kind: str = "Run") -> RunKey:
    """The one key that a NAME or NAMESPACE/NAME means."""
    wanted = text.removeprefix(NAME_PREFIX)
    namespace, slash, name = wanted.rpartition("/")
    if not slash and settings.namespace:
        namespace = settings.namespace
    found = [key for key in known if key[1] == name and namespace in ("", key[0])]
    if len(found) > 1:
        found = _at_home(found, settings)
    if len(found) > 1:
        spelled = joined_list(["/".join(key) for key in sorted(found)], most=8)
        raise CommandError(Exit.USAGE, f"several {kind}s are named {name}: say which one of {spelled}")
    if not found:
        raise CommandError(Exit.NOT_FOUND, _nothing(wanted, known, kind))
    return found[0]


def _at_home(found: list[RunKey], settings: CommandOptions) -> list[RunKey]:
    """On a live cluster the context's namespace goes first."""
    if not settings.live:
        return found
    from jobtree.cli.source.live_cluster import default_namespace

    here = default_namespace(settings)
    return [key for key in found if key[0] == here] or found


def _nothing(wanted: str, known: list[RunKey], kind: str) -> str:
    elsewhere = ["/".join(key) for key in known if key[1] == wanted.rpartition("/")[2]]
    hint = f"did you mean {elsewhere[0]}?" if elsewhere else suggestion(wanted, [key[1] for key in known])
    return f"there is no {kind} {wanted}: {hint or LISTS[kind]}"


def find_node(cluster: Cluster, name: str) -> str:
    """A node that is in the cluster."""
    name = name.removeprefix("node/")
    if ("Node", "", name) not in cluster.objects:
        known = [key[2] for key, _ in cluster.objects.of("Node")]
        hint = suggestion(name, known) or f"the cluster has {joined_list(sorted(known)) or 'no nodes'}"
        raise CommandError(Exit.NOT_FOUND, f"there is no node {name}: {hint}")
    return name
