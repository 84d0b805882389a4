"""``kubectl runs check``: whether the invariants hold."""

import click

from jobtree.cli.shell.command_errors import Exit
from jobtree.cli.shell.options import CommandOptions, verb
from jobtree.cli.shell.wording import counted_noun, joined_list

EXAMPLES = """
kubectl runs --state cluster.yaml check
kubectl runs --state cluster.yaml check --archive archive/    # and that nothing is missing there
"""


@verb("check", examples=EXAMPLES)
@click.option("--archive", metavar="DIR", help="Check the archive in this directory against the budgets too.")
def command(settings: CommandOptions, archive: str | None) -> int:
    """Check the invariants of a cluster: says OK, or lists all that are broken (exit code 1).

    With --archive: every file is what was written, and its leases add up to what the budgets carry.
    """
    from jobtree.cli.shell.object_output import api_status, print_objects
    from jobtree.cli.source.archive_access import audit
    from jobtree.cli.source.session import read_cluster

    cluster = read_cluster(settings, checked=False)
    broken = [
        (violation.invariant, violation.message)
        for violation in cluster.violations(planned=not settings.live)
    ]
    broken += audit(cluster, archive) if archive is not None else []
    if not settings.human:
        causes = [{"reason": name, "message": message} for name, message in broken]
        status = api_status(f"{len(broken)} invariants are broken", causes)
        print_objects(settings, [status], many=False)
    elif broken:
        for invariant, message in broken:
            click.echo(f"{invariant}: {message}")
    else:
        kinds = ("Run", "Lease", "Budget", "Node")
        found = [counted_noun(sum(1 for _ in cluster.objects.of(kind)), kind) for kind in kinds]
        click.echo(f"OK: all invariants hold ({joined_list(found)})")
    return Exit.NO if broken else Exit.OK
