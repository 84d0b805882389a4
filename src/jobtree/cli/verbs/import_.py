"""``kubectl runs import``: convert objects of other schedulers."""

from jobtree.cli.shell.options import Verbs
from jobtree.cli.verbs.import_kueue import kueue
from jobtree.cli.verbs.import_slurm import slurm

EXAMPLES = """
kubectl runs import slurm train.sh --image registry.example.com/train:1 --owner org:lab --gpu-type H100-80GB
kubectl runs import kueue -f kueue.yaml --to converted
"""

command = Verbs(
    "import",
    help="""Convert Slurm batch scripts or Kueue objects to Runs and Budgets.

    Nothing is submitted: the objects are printed, and 'kubectl runs submit -f' accepts them. Settings
    without an equivalent are listed on stderr, with what happens instead.
    """,
    examples=EXAMPLES,
    verbs=[slurm, kueue],
)
