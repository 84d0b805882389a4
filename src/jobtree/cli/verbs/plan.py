"""``kubectl runs plan``: what would become of a Run, and why. Changes nothing."""

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
@files_option("What if these objects were there? YAML or JSON, - is stdin. Can be given several times.")
def command(settings: CommandOptions, run: str | None, files: tuple[str, ...]) -> int:
    """Why a Run waits and what would help; or where it would start, slot by slot, and who pays.

    Nothing is changed. On a live cluster, RUN is shown as the manager decided it, and -f is planned here, on
    a snapshot, as the manager would plan it: that takes no right but to read.

    The exit code is 0 if every Run asked about runs or would start now, else 1.
    """
    from jobtree.cli.shell.object_output import print_objects
    from jobtree.cli.source.manifests import create_in_cluster, read_manifests
    from jobtree.cli.source.session import edit, find_run, read_cluster
    from jobtree.cli.views.runs.plan_view import PlanView

    if (run is None) == (not files):
        raise click.UsageError("plan needs the name of a Run, or -f FILE, and not both")
    documents = read_manifests(files, settings)
    if run is not None:
        cluster = read_cluster(settings, pods=True)
        planned = PlanView(cluster, [find_run(cluster, run, settings)], cluster.events)
    else:
        with edit(settings, save=False) as cluster:
            known = len(cluster.events)
            keys = create_in_cluster(cluster, documents, replace=True)
            runs = [(namespace, name) for kind, namespace, name in keys if kind == "Run"]
            planned = PlanView(cluster, runs, cluster.events[known:])
    if settings.human:
        planned.show(settings)
    else:
        print_objects(settings, planned.objects())
    return Exit.OK if planned.starts else Exit.NO
