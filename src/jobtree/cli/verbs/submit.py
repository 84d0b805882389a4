"""``kubectl runs submit``: create Runs and Budgets."""

import click

from jobtree.cli.shell.options import CommandOptions, files_option, verb

EXAMPLES = """
kubectl runs --state cluster.yaml submit -f run.yaml
kubectl runs --state cluster.yaml submit -f budgets.yaml -f run.yaml --dry-run
kubectl runs --state cluster.yaml submit -f eval.yaml --after train
cat <<END | kubectl runs --state cluster.yaml submit -f -
apiVersion: rq.davidlangworthy.io/v1
kind: Run
metadata: {name: train}
spec:
  owner: org:ai:research
  resources: {gpuType: H100-80GB, totalGPUs: 16}
  runtime: {checkpoint: 10m}
END
"""


@verb("submit", examples=EXAMPLES)
@files_option("YAML or JSON, any number of objects; - is stdin. Can be repeated.", required=True)
@click.option(
    "--after", metavar="RUN", multiple=True, help="Start only when this Run is Completed. Can be repeated."
)
@click.option("--dry-run", is_flag=True, help="Show the outcome, and save nothing.")
@click.option("--replace", is_flag=True, help="Replace existing objects, as kubectl apply does.")
def command(
    settings: CommandOptions, files: tuple[str, ...], after: tuple[str, ...], *, dry_run: bool, replace: bool
) -> None:
    """Create Runs and Budgets (and Nodes) from manifests, all of them or none.

    For each Run the outcome is printed: where it runs and who pays, or why it waits.
    """
    from jobtree.cli.shell.object_output import print_objects
    from jobtree.cli.source.manifests import following, read_manifests
    from jobtree.cli.source.session import edit
    from jobtree.cli.source.submit_warnings import warn_about_runs
    from jobtree.cli.views.runs.submit_view import submitted
    from jobtree.client.source.object_creation import create_in_cluster

    documents = following(read_manifests(files, settings), after)
    if settings.live:
        from jobtree.cli.source.session import live_cluster
        from jobtree.cli.tasks import live_writes
        from jobtree.client.source import live_runs

        if not dry_run:
            live_writes.submit(settings, documents, replace=replace)
            return
        live_runs.dry_run(live_cluster(settings), documents, replace=replace)
    with edit(settings, save=not dry_run) as cluster:
        keys = create_in_cluster(cluster, documents, replace=replace)
        if not settings.live:  # a live cluster has given its own warnings
            warn_about_runs(cluster, (key[1:] for key in keys if key[0] == "Run"))
        lines = list(submitted(cluster, keys))
        cluster.documents()
        bodies = [body for key in keys if (body := cluster.objects.get(key))]
    if not settings.human:
        print_objects(settings, bodies, many=len(bodies) > 1)
        return
    for line in lines:
        click.echo(line)
    if dry_run:
        click.echo("dry run: nothing was saved")
