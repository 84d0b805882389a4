"""``kubectl runs tree``: draw a job tree with phases and times of its stages."""

import click

from jobtree.cli.shell.options import CommandOptions, verb
from jobtree.cli.source.name_completion import run_names

EXAMPLES = """
kubectl runs --state cluster.yaml tree pipeline
kubectl runs --state cluster.yaml tree pipeline -o json    # the tree's Run and those of its stages
"""


@verb("tree", examples=EXAMPLES)
@click.argument("run", metavar="RUN", shell_complete=run_names)
def command(settings: CommandOptions, run: str) -> None:
    """Draw a job tree: its stages, what they wait for, when they start and when they are done."""
    from jobtree.cli.shell.object_output import print_objects
    from jobtree.cli.source.session import find_run, read_cluster
    from jobtree.cli.views.runs.tree_table import print_tree

    cluster = read_cluster(settings)
    tree = cluster.world.runs[find_run(cluster, run, settings)]
    if not settings.human:
        cluster.documents()
        runs = [tree, *cluster.world.run_graph.descendants(tree)]
        print_objects(settings, [cluster.objects.get(("Run", *member.key)) or {} for member in runs])
        return
    print_tree(settings, cluster.world, tree)
