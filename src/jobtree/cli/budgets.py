"""``kubectl runs budgets usage``: what has been given out, and what is left."""

import click

from jobtree.cli.settings import Settings, Verbs, verb

EXAMPLES = """
kubectl runs --state cluster.yaml budgets usage
kubectl runs --state cluster.yaml budgets usage --owner org:ai:rai:sys
kubectl runs --state cluster.yaml budgets usage -o json
"""


@verb("usage", examples=EXAMPLES)
@click.option("--owner", metavar="OWNER", help="Only budgets of this team and of teams below it.")
def usage(settings: Settings, owner: str | None) -> None:
    """Per envelope and cap: GPUs used and free, split by class; GPU-hours used and left.

    Spares count at their discounted rate, opportunistic GPUs are not charged. A dash means: no limit.
    """
    from jobtree.cli.ledgerview import belongs_to
    from jobtree.cli.output import print_objects
    from jobtree.cli.session import read
    from jobtree.cli.usagetable import print_usage

    cluster = read(settings)
    cluster.documents()
    found = [
        body
        for _, body in sorted(cluster.objects.of("Budget"), key=lambda item: item[0])
        if owner is None or belongs_to(body["spec"]["owner"], owner)
    ]
    if settings.human:
        print_usage(settings, found)
    else:
        print_objects(settings, found)


command = Verbs(
    "budgets",
    help="What envelopes and caps have given out, and what is left.",
    examples=EXAMPLES,
    verbs=[usage],
)
