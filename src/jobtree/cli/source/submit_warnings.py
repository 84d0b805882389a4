"""Warns about submitted Runs as the webhook of a live cluster does."""

from collections.abc import Callable, Iterable

from jobtree.api.kinds.run import Run
from jobtree.cli.shell.command_errors import warn
from jobtree.core import RunKey, run_warnings
from jobtree.snapshot.cluster import Cluster


def warn_about_runs(cluster: Cluster, runs: Iterable[RunKey]) -> None:
    """Prints what of these Runs other objects do not allow yet, such as a sponsor that does not lend."""
    budgets = [budget.spec for budget in cluster.world.budgets.budgets.values()]
    for key in runs:
        run = cluster.world.runs.get(key)
        if run is not None:
            for remark in run_warnings(run.run_object, budgets, runs_in(cluster, key[0])):
                warn(f"{remark.field}: {remark.value}: {remark.rule}")


def runs_in(cluster: Cluster, namespace: str) -> Callable[[str], Run | None]:
    """Returns a function that finds the Runs of a namespace by name."""

    def named(name: str) -> Run | None:
        run = cluster.world.runs.get((namespace, name))
        return run.run_object if run is not None else None

    return named
