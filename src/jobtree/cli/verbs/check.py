"""``kubectl runs check``: check the invariants."""

import click

from jobtree.cli.shell.command_errors import Exit
from jobtree.cli.shell.options import CommandOptions, verb
from jobtree.messages.wording import counted_noun, joined_list

EXAMPLES = """
kubectl runs --state cluster.yaml check
kubectl runs --state cluster.yaml check --archive archive/    # and that nothing is missing there
"""


@verb("check", examples=EXAMPLES)
@click.option(
    "--archive", metavar="DIR", help="Also check the archive in this directory against the Budgets."
)
def command(settings: CommandOptions, archive: str | None) -> int:
    """Check the invariants of a cluster: print OK, or list all that are broken (exit code 1).

    With --archive: check that no file was altered, and that its leases add up to the usage that the
    Budgets carry.
    """
    from jobtree.cli.shell.object_output import api_status, print_objects
    from jobtree.cli.source.session import read_cluster
    from jobtree.client.source.archive_access import audit

    cluster = read_cluster(settings, checked=False)
    problems = [
        (violation.invariant, violation.message)
        for violation in cluster.violations(planned=not settings.live)
    ]
    problems += audit(cluster, archive) if archive is not None else []
    if not settings.human:
        causes = [{"reason": name, "message": message} for name, message in problems]
        status = api_status(f"{len(problems)} invariants are broken", causes)
        print_objects(settings, [status], many=False)
    elif problems:
        for invariant, message in problems:
            click.echo(f"{invariant}: {message}")
    else:
        kinds = ("Run", "Lease", "Budget", "Node")
        counts = [counted_noun(sum(1 for _ in cluster.objects.of(kind)), kind) for kind in kinds]
        click.echo(f"OK: all invariants hold ({joined_list(counts)})")
    return Exit.NO if problems else Exit.OK
