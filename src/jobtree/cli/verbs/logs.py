"""``kubectl runs logs``: print the logs of the ranks of a Run."""

import click

from jobtree.cli.shell.options import CommandOptions, verb
from jobtree.cli.source.name_completion import run_names

EXAMPLES = """
kubectl runs logs train                # of rank 0
kubectl runs logs train --rank 3 -f    # follow
kubectl runs logs train --group 1      # of all ranks of a group, one after the other
"""


@verb("logs", examples=EXAMPLES)
@click.argument("run", metavar="RUN", shell_complete=run_names)
@click.option("-f", "--follow", is_flag=True, help="Keep printing new lines.")
@click.option("--rank", type=click.IntRange(min=0), help="The rank to print. [default: 0]")
@click.option("--group", type=click.IntRange(min=0), help="Print all ranks of this group.")
@click.option("-c", "--container", default="", help="The container to print. [default: the only one]")
def command(  # noqa: PLR0913  its options
    settings: CommandOptions,
    run: str,
    rank: int | None,
    group: int | None,
    container: str,
    *,
    follow: bool,
) -> None:
    """Print the log of a rank of a Run, or of all ranks of a group. Only on a live cluster."""
    from jobtree.cli.tasks.live_pods import print_logs, run_pods

    if rank is not None and group is not None:
        raise click.UsageError("give either --rank or --group")
    found = run_pods(settings, run)
    pods = found.of_group(group) if group is not None else [found.of_rank(rank or 0)]
    if follow and len(pods) > 1:
        raise click.UsageError("-f can follow only one rank: add --rank N")
    print_logs(found, pods, container, follow=follow)
