"""``kubectl runs budgets usage``: the usage of envelopes and caps."""

import click

from jobtree.cli.shell.options import CommandOptions, Verbs, period_options, verb

EXAMPLES = """
kubectl runs --state cluster.yaml budgets usage
kubectl runs --state cluster.yaml budgets usage --owner org:ai:rai:sys
kubectl runs --state cluster.yaml budgets usage -o json
kubectl runs --state cluster.yaml budgets usage --since 2026-01-01 --until 2026-02-01 -o csv
"""


@verb("usage", examples=EXAMPLES, outputs=("csv",))
@click.option("--owner", metavar="OWNER", help="Only Budgets of this team and of teams below it.")
@period_options
def usage(
    settings: CommandOptions, owner: str | None, since: str | None, until: str | None, archive: str | None
) -> int:
    """Show used and free GPUs and GPU-hours of each envelope and cap.

    FREE and HOURS LEFT are what a Run of the owner that arrives now could really start with, FAMILY what one
    of another owner of its family could; room on nodes is not considered. COMMITTED are GPU-hours that Runs
    with a maxDuration and promised Runs will still use. WHY LESS says what keeps FREE below the envelope.
    GPUs by class are shown with -o wide. Spares are charged at their discounted rate; opportunistic GPUs are
    not charged. A dash means no limit. With --since or --until: what each envelope paid for in that period,
    including archived leases.
    """
    from jobtree.cli.shell.object_output import print_objects
    from jobtree.cli.source.session import read_cluster
    from jobtree.cli.views.ledger.usage_table import print_usage
    from jobtree.client.source.lease_entries import belongs_to
    from jobtree.client.source.ledger_period import parse_period
    from jobtree.client.source.owner_names import refuse_unknown_owner

    period = parse_period(since, until)
    cluster = read_cluster(settings)
    if since is not None or until is not None or archive is not None or settings.output == "csv":
        from jobtree.cli.views.ledger.period_usage import print_period

        return print_period(settings, cluster, owner, period, archive)
    refuse_unknown_owner(cluster, owner)
    cluster.documents()
    budgets = [
        body
        for _, body in sorted(cluster.objects.of("Budget"), key=lambda item: item[0])
        if owner is None or belongs_to(body["spec"]["owner"], owner)
    ]
    if settings.human:
        print_usage(settings, budgets)
    else:
        print_objects(settings, budgets)
    return 0


command = Verbs(
    "budgets",
    help="Show the usage of envelopes and caps, and what is left.",
    examples=EXAMPLES,
    verbs=[usage],
)
