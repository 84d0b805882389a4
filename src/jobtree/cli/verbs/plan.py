"""``kubectl runs plan``: why a Run waits, or where it would start. Changes nothing."""

import click

from jobtree.cli.shell.command_errors import Exit
from jobtree.cli.shell.options import CommandOptions, files_option, verb
from jobtree.cli.source.name_completion import run_names

EXAMPLES = """
kubectl runs --state cluster.yaml plan train         # why it waits and what would help, or where it is
kubectl runs --state cluster.yaml plan -f run.yaml   # what if this were submitted?
kubectl runs --state cluster.yaml plan -f run.yaml -o json
kubectl runs --state cluster.yaml plan -f run.yaml -o github --allow-wait   # in a pipeline
"""


@verb("plan", examples=EXAMPLES, outputs=("github", "junit"))
@click.argument("run", required=False, shell_complete=run_names)
@files_option("Plan as if these objects were created: YAML or JSON; - is stdin. Can be repeated.")
@click.option("--allow-wait", is_flag=True, help="The exit code is also 0 if each Run has a date to start.")
def command(settings: CommandOptions, run: str | None, files: tuple[str, ...], *, allow_wait: bool) -> int:
    """Show why a Run waits and what would help, or where it would start and who pays.

    Nothing is changed. On a live cluster, RUN is shown as the manager decided it; -f is planned locally on a
    snapshot, as the manager would plan it, and needs only the permission to read.

    The exit code is 0 if all these Runs are running or would start now, else 1. With -o json a RunPlan for
    each Run follows the objects. For pipelines, -o github prints annotations and -o junit a test report.
    """
    from jobtree.cli.source.manifests import read_manifests
    from jobtree.cli.source.session import edit, find_run, read_cluster
    from jobtree.cli.source.submit_warnings import warn_about_runs
    from jobtree.cli.views.runs.plan_view import print_plan
    from jobtree.client.plans.plan_result import PlanResult, what_if

    if (run is None) == (not files):
        raise click.UsageError("give either a Run or -f FILE")
    documents = read_manifests(files, settings)
    if run is not None:
        cluster = read_cluster(settings, pods=True)
        result = PlanResult(cluster, [find_run(cluster, run, settings)], cluster.events)
    else:
        with edit(settings, save=False) as cluster:
            result = what_if(cluster, documents)
            warn_about_runs(cluster, (state.key for state in result.states))
    return Exit.OK if print_plan(settings, result, allow_wait=allow_wait) else Exit.NO
