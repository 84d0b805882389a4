"""``kubectl runs audit``: check the invariants, and pods against leases."""

import click

from jobtree.cli.shell.command_errors import Exit
from jobtree.cli.shell.options import CommandOptions, verb

EXAMPLES = """
kubectl runs audit
kubectl runs audit -o json    # a Status with every violation
"""


@verb("audit", examples=EXAMPLES)
def command(settings: CommandOptions) -> int:
    """Check the invariants of a cluster, and that its pods match its leases.

    The cluster is checked as it is, without planning first. The exit code is 1 if anything is wrong. Promises
    whose date has passed are counted too: how many were kept, firm and conditional ones apart.
    """
    from jobtree.cli.shell.object_output import api_status, print_objects
    from jobtree.cli.tasks.audit_findings import audit

    problems, kept = audit(settings)
    if not settings.human:
        causes = [{"reason": name, "message": message} for name, message in problems]
        print_objects(settings, [api_status(f"{len(problems)} invariants are broken", causes)], many=False)
    for name, message in problems if settings.human else ():
        click.echo(f"{name}: {message}")
    if settings.human and not problems:
        click.echo("OK: all invariants hold, and all pods match their leases")
    for sentence in kept if settings.human else ():
        click.echo(sentence)
    return Exit.NO if problems else Exit.OK
