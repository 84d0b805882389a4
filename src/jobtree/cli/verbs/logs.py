"""``kubectl runs logs``: what the ranks of a Run print."""

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
@click.option("-f", "--follow", is_flag=True, help="Go on as more is printed.")
@click.option("--rank", type=click.IntRange(min=0), help="Of this rank. [default: 0]")
@click.option("--group", type=click.IntRange(min=0), help="Of all ranks of this group.")
@click.option("-c", "--container", default="", help="Of this container. [default: the only one]")
def command(  # noqa: PLR0913  its options
    settings: CommandOptions,
    run: str,
    rank: int | None,
    group: int | None,
    container: str,
    *,
    follow: bool,
) -> None:
    """Print what a rank of a Run prints, or all ranks of a group. Only on a live cluster."""
    from jobtree.cli.tasks.live_pods import RunPods, print_logs

    if rank is not None and group is not None:
        raise click.UsageError("say either --rank or --group")
    crew = RunPods(settings, run)
    chosen = crew.of_group(group) if group is not None else [crew.of_rank(rank or 0)]
    if follow and len(chosen) > 1:
        raise click.UsageError("-f follows one rank: say --rank N")
    print_logs(crew, chosen, container, follow=follow)
