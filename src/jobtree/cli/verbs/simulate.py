"""``kubectl runs simulate``: replay a trace in virtual time, and compare."""

from typing import Any

import click

from jobtree.cli.shell.options import CommandOptions, verb

POLICIES = ("jobtree", "fifo", "sjf", "easy", "conservative", "quota", "quota-by-size")
COMPARE = "compare"

EXAMPLES = """
kubectl runs simulate jobs.csv --nodes 16 --budget vision=64 --budget speech=64
kubectl runs --state cluster.yaml simulate jobs.csv.gz --html report.html
kubectl runs --state cluster.yaml simulate jobs.csv --what-if 'budget vision concurrency=256'
kubectl runs --state cluster.yaml simulate jobs.csv --nodes +16
kubectl runs simulate jobs.csv --nodes 16 --policy easy --json easy.json
kubectl runs --state cluster.yaml simulate cluster.yaml --what-if 'budget vision concurrency=256'
kubectl runs simulate compare jobtree.json easy.json
"""


@verb("simulate", examples=EXAMPLES)
@click.argument("trace", nargs=-1, required=True, metavar="TRACE | compare A.json B.json")
@click.option(
    "--policy", type=click.Choice(POLICIES), default="jobtree", help="Who schedules. [default: jobtree]"
)
@click.option(
    "--nodes",
    multiple=True,
    metavar="N",
    help="A made-up fleet of N nodes; +N or -N: what if there were so many more?",
)
@click.option("--gpus-per-node", type=int, metavar="N", help="Of a made-up fleet. [default: 8]")
@click.option("--domains", type=int, metavar="N", help="Of a made-up fleet. [default: 1]")
@click.option(
    "--budget", multiple=True, metavar="TEAM=GPUS", help="Of a made-up fleet: GPUs, or per cent of it (30%)."
)
@click.option(
    "--flavor", metavar="NAME", help="The GPUs of a state file to replay on, where it has several kinds."
)
@click.option("--where", multiple=True, metavar="COLUMN=VALUE", help="Only rows of the trace that say this.")
@click.option(
    "--since", metavar="DURATION", help="Only jobs submitted from then on, counted from the trace's zero."
)
@click.option("--until", metavar="DURATION", help="Only jobs submitted before that.")
@click.option(
    "--declare",
    type=click.Choice(["none", "exact", "typical"]),
    default="typical",
    help="maxDuration: none, the true one, or overestimated as people do. [default: typical]",
)
@click.option(
    "--checkpoint",
    default="30m",
    metavar="DURATION",
    help="How often jobs save their state, or none. [default: 30m]",
)
@click.option("--notice", is_flag=True, help="Jobs save their state when told that they may be stopped.")
@click.option(
    "--faults",
    metavar="FILE|RATES",
    help="Node outages: CSV with node,start_s,end_s; or rates such as 239d/20h/312h: between two of a node, "
    "down p50, down p90.",
)
@click.option("--seed", type=int, default=1, metavar="N", help="Of all that is drawn. [default: 1]")
@click.option(
    "--what-if",
    "what_if",
    multiple=True,
    metavar="CHANGE",
    help="Also with this change: 'budget X concurrency=256'.",
)
@click.option(
    "--json",
    "json_file",
    metavar="FILE",
    help="Write the report as JSON; with a what-if, that of the change.",
)
@click.option("--html", "html_file", metavar="FILE", help="Write the report as one page with plots.")
@click.option("--resume", metavar="FILE", help="Keep an interrupted replay there, and go on from it.")
def command(settings: CommandOptions, trace: tuple[str, ...], **options: Any) -> None:  # noqa: ANN401  as click gives them
    """Replay a trace of jobs on the fleet and budgets of a state file, or on a made-up fleet.

    TRACE is CSV, plain or gzip, with the columns job_id, user_or_team, submit_s, duration_s and gpus; what
    else it has is ignored. A YAML or JSON file of Runs and Leases is a trace too: its finished Runs.
    Rows that cannot be are skipped and counted. The fleet is empty at the start.

    'compare' puts two reports side by side that --json has written.
    """
    from jobtree.cli.tasks.replay_run import SimulateRequest, simulate
    from jobtree.cli.views.fleet.replay_tables import print_comparison

    if trace[0] == COMPARE:
        if len(trace) != 3:  # noqa: PLR2004  the word and two files
            raise click.UsageError("compare needs two reports: simulate compare A.json B.json")
        print_comparison(settings, *trace[1:])
        return
    if len(trace) > 1:
        raise click.UsageError(f"one trace at a time: what is {trace[1]}?")
    simulate(settings, SimulateRequest(trace=trace[0], **options))
