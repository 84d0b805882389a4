"""``kubectl runs plan``: why a Run waits, or where it would start. Changes nothing."""

import click

from jobtree.cli.shell.command_errors import Exit
from jobtree.cli.shell.options import CommandOptions, files_option, verb
from jobtree.cli.source.name_completion import run_names

EXAMPLES = """
kubectl runs --state cluster.yaml plan train         # why it waits and what would help, or where it is
kubectl runs --state cluster.yaml plan -f run.yaml   # what if this were submitted?
kubectl runs --state cluster.yaml plan -f run.yaml -o json
"""


@verb("plan", examples=EXAMPLES)
@click.argument("run", required=False, shell_complete=run_names)
@files_option("Plan as if these objects were created: YAML or JSON; - is stdin. Can be repeated.")
def command(settings: CommandOptions, run: str | None, files: tuple[str, ...]) -> int:
    """Show why a Run waits and what would help, or where it would start and who pays.

    Nothing is changed. On a live cluster, RUN is shown as the manager decided it; -f is planned locally on a
    snapshot, as the manager would plan it, and needs only the permission to read.

    The exit code is 0 if all these Runs are running or would start now, else 1.
    """
    from jobtree.cli.shell.object_output import print_objects
    from jobtree.cli.source.manifests import read_manifests
    from jobtree.cli.source.session import edit, find_run, read_cluster
    from jobtree.cli.source.submit_warnings import warn_about_runs
    from jobtree.cli.views.runs.plan_view import PlanView
    from jobtree.client.source.object_creation import create_in_cluster

    if (run is None) == (not files):
        raise click.UsageError("give either a Run or -f FILE")
    documents = read_manifests(files, settings)
    if run is not None:
        cluster = read_cluster(settings, pods=True)
        view = PlanView(cluster, [find_run(cluster, run, settings)], cluster.events)
    else:
        with edit(settings, save=False) as cluster:
            earlier_events = len(cluster.events)
            keys = create_in_cluster(cluster, documents, replace=True)
            runs = [(namespace, name) for kind, namespace, name in keys if kind == "Run"]
            warn_about_runs(cluster, runs)
            view = PlanView(cluster, runs, cluster.events[earlier_events:])
    if settings.human:
        view.show(settings)
    else:
        print_objects(settings, view.objects())
    return Exit.OK if view.starts else Exit.NO
