"""``kubectl runs state``: list Runs."""

import click

from jobtree.cli.shell.options import CommandOptions, verb
from jobtree.cli.source.name_completion import run_names

EXAMPLES = """
kubectl runs --state cluster.yaml state --all
kubectl runs --state cluster.yaml state --owner org:ai:rai:sys --phase Reserved
kubectl runs --state cluster.yaml state train
kubectl runs --state cluster.yaml state -n rai-sys -o wide --watch
"""
PHASES = ("Pending", "Waiting", "Reserved", "Running", "Completed", "Failed")


@verb("state", examples=EXAMPLES)
@click.argument("runs", metavar="[RUN...]", nargs=-1, shell_complete=run_names)
@click.option("-A", "--all", "everywhere", is_flag=True, help="List Runs of all namespaces; -n is ignored.")
@click.option("--owner", metavar="OWNER", help="Only Runs of this team and of teams below it.")
@click.option(
    "--phase",
    "phases",
    metavar="PHASE",
    multiple=True,
    type=click.Choice(PHASES, case_sensitive=False),
    help=f"Only Runs in this phase: {', '.join(PHASES)}. Can be repeated.",
)
@click.option("--finished", is_flag=True, help="Include Runs that finished more than a day ago.")
@click.option("-w", "--watch", "watching", is_flag=True, help="List again after every change, until Ctrl-C.")
def command(  # noqa: PLR0913  one for each option
    settings: CommandOptions,
    *,
    runs: tuple[str, ...],
    owner: str | None,
    phases: tuple[str, ...],
    everywhere: bool,
    finished: bool,
    watching: bool,
) -> None:
    """List Runs: phase, width, who pays, where they run, and why they wait.

    WIDTH is allocated of desired GPUs, PAID the GPUs by class, SINCE the time in the present phase, ETA the
    promised start of a waiting Run. On a live cluster only the Runs of the context's namespace are listed,
    unless --all, --owner or -n is given. Runs that finished more than a day ago are listed by name, with
    --finished or with their --phase, and by -o json, yaml and name.
    """
    from jobtree.cli.tasks.run_list import RunFilter, list_runs

    wanted = RunFilter(
        names=runs,
        namespace=None if everywhere else namespace_of(settings, owner),
        owner=owner,
        phases=frozenset(phases),
        finished=finished or not settings.human or bool(runs) or bool({"Completed", "Failed"} & {*phases}),
    )
    list_runs(settings, wanted, watching=watching)


def namespace_of(settings: CommandOptions, owner: str | None) -> str | None:
    """Returns the namespace to list; None: all, since teams use several and a simulation is shown whole."""
    if settings.namespace or owner or not settings.live:
        return settings.namespace
    from jobtree.cli.source.session import cluster_name

    return cluster_name(settings).default_namespace()
