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
    "--policy", type=click.Choice(POLICIES), default="jobtree", help="The scheduler. [default: jobtree]"
)
@click.option(
    "--nodes",
    multiple=True,
    metavar="N",
    help="Replay on a made-up fleet of N nodes. +N or -N: also with N nodes more or fewer.",
)
@click.option("--gpus-per-node", type=int, metavar="N", help="GPUs per node of a made-up fleet. [default: 8]")
@click.option("--domains", type=int, metavar="N", help="Domains of a made-up fleet. [default: 1]")
@click.option(
    "--budget",
    multiple=True,
    metavar="TEAM=GPUS",
    help="A budget on a made-up fleet, in GPUs or per cent (30%).",
)
@click.option("--flavor", metavar="NAME", help="The GPU flavor to replay on, if the state file has several.")
@click.option(
    "--where", multiple=True, metavar="COLUMN=VALUE", help="Only rows of the trace with this value."
)
@click.option(
    "--since", metavar="DURATION", help="Only jobs submitted at or after this offset from the trace's zero."
)
@click.option("--until", metavar="DURATION", help="Only jobs submitted before this offset.")
@click.option(
    "--declare",
    type=click.Choice(["none", "exact", "typical"]),
    default="typical",
    help="The maxDuration of jobs: none, exact, or overestimated as in real traces. [default: typical]",
)
@click.option(
    "--checkpoint",
    default="30m",
    metavar="DURATION",
    help="How often jobs save their state, or none. [default: 30m]",
)
@click.option(
    "--restart-cost",
    default="0s",
    metavar="DURATION",
    help="How long a job that was stopped takes to restart. [default: 0s]",
)
@click.option(
    "--notice", is_flag=True, help="Jobs save their state when they are notified that they may be stopped."
)
@click.option(
    "--faults",
    metavar="FILE|RATES",
    help="Node outages: a CSV file with node,start_s,end_s; or rates such as 239d/20h/312h: mean time "
    "between two outages of a node, downtime p50, downtime p90.",
)
@click.option("--seed", type=int, default=1, metavar="N", help="The seed of all random draws. [default: 1]")
@click.option(
    "--what-if",
    "what_if",
    multiple=True,
    metavar="CHANGE",
    help="Also replay with this change, such as 'budget X concurrency=256'.",
)
@click.option(
    "--json",
    "json_file",
    metavar="FILE",
    help="Write the report as JSON; with --what-if, the report of the change.",
)
@click.option("--html", "html_file", metavar="FILE", help="Write the report as an HTML page with plots.")
@click.option(
    "--resume", metavar="FILE", help="Save an interrupted replay in this file, and continue from it."
)
def command(settings: CommandOptions, trace: tuple[str, ...], **options: Any) -> None:  # noqa: ANN401  click's types
    """Replay a trace of jobs on the fleet and budgets of a state file, or on a made-up fleet.

    TRACE is CSV, plain or gzip, with the columns job_id, user_or_team, submit_s, duration_s and gpus;
    other columns are ignored. A YAML or JSON file of Runs and Leases is read as a trace of its finished
    Runs. Invalid rows are skipped and counted. The fleet is empty at the start.

    'compare' prints two reports that --json has written, side by side.
    """
    from jobtree.cli.tasks.replay_run import SimulateRequest, simulate
    from jobtree.cli.views.fleet.replay_tables import print_comparison

    if trace[0] == COMPARE:
        if len(trace) != 3:  # noqa: PLR2004  the word and two files
            raise click.UsageError("compare needs two reports: simulate compare A.json B.json")
        print_comparison(settings, *trace[1:])
        return
    if len(trace) > 1:
        raise click.UsageError(f"give only one trace: {trace[1]} is a second one")
    simulate(settings, SimulateRequest(trace=trace[0], **options))
