"""``kubectl runs init``: write a first state file."""

import click

from jobtree.cli.shell.options import CommandOptions, verb

DEFAULT_PATH = "cluster.yaml"

NEXT = """\
wrote {path}: 8 nodes in 2 domains (64 GPUs), 2 budgets, 1 Run

Try next:
  export JOBTREE_STATE={path}
  kubectl runs state --all           the Run, where it runs and who pays
  kubectl runs budgets usage         what each team has left
  kubectl runs plan hello            its slots and their payers
  kubectl runs advance 1h            move the clock
  kubectl runs submit --help         has a Run to copy"""


EXAMPLES = """
kubectl runs init                      # writes cluster.yaml
kubectl runs init lab.yaml --force     # start over
"""


@verb("init", examples=EXAMPLES)
@click.argument("file", required=False)
@click.option("--force", is_flag=True, help="Replace an existing file.")
def command(settings: CommandOptions, file: str | None, *, force: bool) -> None:
    """Write the state file of a small simulated cluster.

    It has two domains of four nodes, two Budgets, a first Run and comments. FILE defaults to cluster.yaml.
    """
    from jobtree.api.documents.document_stream import read_documents
    from jobtree.cli.shell.object_output import print_objects
    from jobtree.cli.source.session import state_file
    from jobtree.client.source.sample_cluster import starting_cluster

    path, text = file or settings.state or DEFAULT_PATH, starting_cluster()
    state_file(path).create(text, replace=force)
    if settings.human:
        click.echo(NEXT.format(path=path))
    else:
        print_objects(settings, [document.body for document in read_documents(text, path)])
