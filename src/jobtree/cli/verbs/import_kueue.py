"""``kubectl runs import kueue``: queues and jobs of Kueue."""

import click

from jobtree.cli.shell.options import CommandOptions, files_option, verb

EXAMPLES = """
kubectl runs import kueue -f kueue.yaml -f jobs.yaml --to converted
kubectl runs import kueue -f kueue.yaml --flavor h100=H100-80GB | kubectl runs submit -f -
kubectl runs import kueue --to converted     # of the live cluster, as kubectl shows it
"""


@verb("kueue", examples=EXAMPLES)
@files_option("YAML or JSON, any number of objects; - is stdin. Without a file: the live cluster.")
@click.option(
    "--flavor",
    "flavors",
    metavar="OLD=NEW",
    multiple=True,
    help="The Jobtree name of a ResourceFlavor (node label gpu.flavor).",
)
@click.option("--checkpoint", metavar="DURATION", help="How often the jobs save their state, such as 30m.")
@click.option(
    "--to",
    metavar="DIR",
    type=click.Path(),
    help="Write one file for each object to this directory, not to stdout.",
)
@click.option("--force", is_flag=True, help="Replace existing files.")
def kueue(  # noqa: PLR0913  one for each option
    settings: CommandOptions,
    files: tuple[str, ...],
    flavors: tuple[str, ...],
    checkpoint: str | None,
    to: str | None,
    *,
    force: bool,
) -> None:
    """Convert Kueue's queues to Budgets, and jobs to Runs.

    Reads ResourceFlavors, ClusterQueues, Cohorts, LocalQueues, Topologies, Workloads, Jobs, JobSets and
    PyTorchJobs (and Nodes, for the labels that they need). Settings without an equivalent are listed on
    stderr.
    """
    from jobtree.api.documents.document_stream import read_documents
    from jobtree.cli.source.kubectl_objects import get_objects
    from jobtree.cli.source.manifests import read_file
    from jobtree.cli.tasks.import_output import ImportOutput
    from jobtree.importers.kueue.kueue_importer import RESOURCES, convert_kueue, flavor_names

    names = flavor_names(flavors)
    documents = [] if files else list(get_objects(RESOURCES))
    for path in files:
        name, raw = read_file(path)
        documents += read_documents(raw, name)
    output = ImportOutput(settings, to, replace=force)
    output.write(convert_kueue(documents, names, checkpoint))
