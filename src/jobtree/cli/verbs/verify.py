"""``kubectl runs verify``: check the proof of a lottery."""

import click

from jobtree.cli.shell.options import CommandOptions, verb
from jobtree.cli.source.name_completion import reservation_names

EXAMPLES = """
kubectl runs --state cluster.yaml verify train-1
kubectl get reservation train-1 -o json > proof.json && kubectl runs --state proof.json verify train-1
"""


@verb("verify", examples=EXAMPLES)
@click.argument("reservation", shell_complete=reservation_names)
def command(settings: CommandOptions, reservation: str) -> int:
    """Recompute a lottery from the record in its Reservation, and compare.

    The commitment, the seed, every draw, the decision and the signature must follow from one another. If the
    lottery key is on this machine, the record must be signed with it. The state file needs to contain only
    the Reservation. The exit code is 0 if the proof is accepted, 1 if it is refused.
    """
    from jobtree.cli.tasks.record_checks import verify_reservation

    return verify_reservation(settings, reservation)
