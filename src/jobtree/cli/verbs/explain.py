"""``kubectl runs explain``: the history of a Run."""

import click

from jobtree.cli.shell.options import CommandOptions, verb
from jobtree.cli.source.name_completion import run_names

EXAMPLES = """
kubectl runs --state cluster.yaml explain train
kubectl runs --state cluster.yaml explain train --verify
kubectl runs --state cluster.yaml explain train -o yaml    # the Run, its Reservations and all its leases
"""


@verb("explain", examples=EXAMPLES)
@click.argument("run", shell_complete=run_names)
@click.option(
    "--verify", is_flag=True, help="Recompute all its lotteries; the exit code is 1 if a proof is refused."
)
def command(settings: CommandOptions, run: str, *, verify: bool) -> int:
    """Show the history of a Run: its phase and why, what it held and when, and who paid.

    It includes its promise, the risks to it, and the lotteries it took part in: which Runs competed with how
    many tickets, which were drawn, what was given back. The histories of stages follow that of their job
    tree. Of a Run that was deleted, its leases are shown.
    """
    from jobtree.cli.shell.command_errors import Exit
    from jobtree.cli.shell.object_output import print_objects
    from jobtree.cli.source.session import choose, read_cluster
    from jobtree.cli.views.runs.run_history import RunHistoryView, deleted_run_lines
    from jobtree.client.plans.explanation import Explanation
    from jobtree.client.source.lease_entries import entries

    if verify:
        from jobtree.cli.tasks.record_checks import verify_run

        return verify_run(settings, run)
    cluster = read_cluster(settings)
    ledger = entries(cluster, lambda _: True)
    key = choose(run, sorted({*cluster.world.runs, *(entry.lease.run_key for entry in ledger)}), settings)
    if key in cluster.world.runs:
        history = Explanation(cluster, cluster.world.runs[key])
        lines, objects = RunHistoryView(history).lines(), history.objects()
    else:
        leases = [entry for entry in ledger if entry.lease.run_key == key]
        lines, objects = deleted_run_lines("/".join(key), leases), [entry.body for entry in leases]
    if not settings.human:
        print_objects(settings, objects)
        return Exit.OK
    for line in lines:
        click.echo(line, color=settings.color)
    return Exit.OK
