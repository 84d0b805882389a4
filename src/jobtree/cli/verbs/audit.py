"""``kubectl runs audit``: the invariants on a cluster as it stands, and its pods against its leases."""

import click

from jobtree.cli.shell.command_errors import Exit
from jobtree.cli.shell.options import CommandOptions, verb

EXAMPLES = """
kubectl runs audit
kubectl runs audit -o json    # a Status with every violation
"""


@verb("audit", examples=EXAMPLES)
def command(settings: CommandOptions) -> int:
    """Check a cluster as it stands: all invariants, and that pods and leases say the same.

    Nothing is planned before it is judged. The exit code is 1 if anything is wrong.
    """
    from jobtree.cli.shell.object_output import api_status, print_objects
    from jobtree.cli.tasks.audit_findings import findings

    wrong = findings(settings)
    if not settings.human:
        causes = [{"reason": name, "message": message} for name, message in wrong]
        print_objects(settings, [api_status(f"{len(wrong)} invariants are broken", causes)], many=False)
    for name, message in wrong if settings.human else ():
        click.echo(f"{name}: {message}")
    if settings.human and not wrong:
        click.echo("OK: all invariants hold, and pods and leases say the same")
    return Exit.NO if wrong else Exit.OK
