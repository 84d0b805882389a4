"""``kubectl runs doctor``: what of an installation does not work, and what to do about it."""

import click

from jobtree.cli.shell.command_errors import Exit
from jobtree.cli.shell.options import CommandOptions, verb

EXAMPLES = """
kubectl runs doctor
kubectl runs --state cluster.yaml doctor    # nodes, Budgets and policy of a state file
"""


@verb("doctor", examples=EXAMPLES)
def command(settings: CommandOptions) -> int:
    """Check an installation: versions, rights, labels, Budgets, policy, webhook, certificate, clock.

    Each line says what was found, and what to do where that is not well. A line with ? could not be checked
    with your rights. The exit code is 1 if anything has to be done.
    """
    from jobtree.cli.shell.object_output import api_status, print_objects
    from jobtree.cli.tasks.doctor_checks import BAD, diagnose

    findings = list(diagnose(settings))
    failed = [finding for finding in findings if finding.mark == BAD]
    if not settings.human:
        causes = [{"reason": finding.subject, "message": finding.text} for finding in failed]
        print_objects(settings, [api_status(f"{len(failed)} checks failed", causes)], many=False)
        return Exit.NO if failed else Exit.OK
    width = max(len(finding.subject) for finding in findings)
    for finding in findings:
        click.echo(f"{finding.mark}  {finding.subject:<{width}}  {finding.text}")
        if finding.advice:
            click.echo(f"{'':<{width + 6}}→ {finding.advice}")
    return Exit.NO if failed else Exit.OK
