"""``kubectl runs complete``: complete Runs, or let a rank fail."""

from typing import TYPE_CHECKING

import click

from jobtree.cli.shell.command_errors import CommandError, Exit
from jobtree.cli.shell.options import CommandOptions, verb
from jobtree.cli.source.name_completion import run_names

if TYPE_CHECKING:
    from jobtree.core import RunKey, RunState
    from jobtree.simulation.cluster.simulated_cluster import SimulatedCluster

EXAMPLES = """
kubectl runs --state cluster.yaml complete train
kubectl runs --state cluster.yaml complete train --rank 3 --exit-code 1    # that rank fails
"""


@verb("complete", examples=EXAMPLES)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=run_names)
@click.option("--rank", type=click.IntRange(min=0), default=0, help="The rank that fails. [default: 0]")
@click.option(
    "--exit-code", "code", type=click.IntRange(0, 255), default=0, help="Let one rank fail with this code."
)
def command(settings: CommandOptions, runs: tuple[str, ...], *, rank: int, code: int) -> None:
    """Let all ranks of Runs succeed now, or one rank fail. Only in a simulation."""
    from jobtree.cli.shell.object_output import print_objects
    from jobtree.cli.source.session import edit_simulation, find_run
    from jobtree.cli.views.event_lines import event_lines

    with edit_simulation(settings) as cluster:
        keys = list(dict.fromkeys(find_run(cluster, run, settings) for run in runs))
        for key in keys:
            refuse_idle(cluster.world.runs[key])
            if code:
                fail_rank(cluster, key, rank, code)
            else:
                cluster.complete(key)
        cluster.documents()
        bodies = [body for key in keys if (body := cluster.objects.get(("Run", *key)))]
    if not settings.human:
        print_objects(settings, bodies, many=len(bodies) > 1)
        return
    for line in event_lines(cluster.events):
        click.echo(line)


def refuse_idle(run: "RunState") -> None:
    """Raises CommandError unless the Run is running."""
    if run.phase != "Running":
        name = "/".join(run.key)
        hint = f"'kubectl runs plan {name}' shows why" if run.waiting else "it is finished"
        raise CommandError(Exit.CONFLICT, f"{name} is {run.phase}, not Running: {hint}")


def fail_rank(cluster: "SimulatedCluster", key: "RunKey", rank: int, code: int) -> None:
    ranks = len(cluster.world.runs[key].rank_slots)
    if rank >= ranks:
        raise CommandError(Exit.USAGE, f"{'/'.join(key)} has no rank {rank}: its ranks are 0 to {ranks - 1}")
    cluster.crash(key, rank, code)
