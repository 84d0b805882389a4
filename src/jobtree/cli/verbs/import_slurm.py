"""``kubectl runs import slurm``: batch scripts, accounts and past jobs of Slurm."""

import os

import click

from jobtree.cli.shell.command_errors import CommandError, Exit
from jobtree.cli.shell.options import CommandOptions, verb

EXAMPLES = """
kubectl runs import slurm train.sh --image registry.example.com/train:1 --owner org:lab --gpu-type H100-80GB
kubectl runs import slurm prepare.sh train.sh --map site.yaml --to converted
kubectl runs import slurm train.sh --map site.yaml | kubectl runs --state cluster.yaml submit -f -
sacctmgr show assoc -p | kubectl runs import slurm --accounts - --gpu-type H100-80GB
sacct -a -p -o JobID,Account,Submit,Elapsed,AllocTRES,State | kubectl runs import slurm --sacct -

# site.yaml maps names of the site to Jobtree's; every part is optional:
image: registry.example.com/train:1
gpus: {a100: A100-80GB}
partitions:
  gpu: {gpuType: H100-80GB, gpusPerNode: 8, defaultTime: 1-00:00:00}
constraints:
  nvlink: {nodeSelector: {fabric: nvlink}}
accounts: {physics: "org:science:physics"}
qos:
  scavenger: {allowOpportunistic: true}
jobs: {"4711": prepare}
volumes:
- {claim: home, mountPath: /home}
"""


@verb("slurm", examples=EXAMPLES)
@click.argument("scripts", metavar="[SCRIPT...]", nargs=-1, type=click.Path())
@click.option("--image", metavar="IMAGE", help="The container image that runs the scripts; it needs bash.")
@click.option("--owner", metavar="OWNER", help="The team that pays, unless an account maps to another.")
@click.option("--gpu-type", metavar="FLAVOR", help="The GPU flavor, if the script and the mapping name none.")
@click.option("--checkpoint", metavar="DURATION", help="How often the jobs save their state, such as 30m.")
@click.option(
    "--map", "map_file", metavar="FILE", type=click.Path(), help="A YAML file that maps names of the site."
)
@click.option(
    "--env-file",
    metavar="FILE",
    type=click.Path(),
    help="Read NAME=VALUE lines from here, not your environment; SBATCH_* variables override directives.",
)
@click.option(
    "--accounts",
    metavar="FILE",
    type=click.Path(),
    help="Convert the output of 'sacctmgr show assoc -p' to Budgets.",
)
@click.option(
    "--sacct",
    metavar="FILE",
    type=click.Path(),
    help="Convert the output of 'sacct -p' to a trace for 'simulate'.",
)
@click.option(
    "--to",
    metavar="DIR",
    type=click.Path(),
    help="Write one file for each object to this directory, not to stdout.",
)
@click.option("--force", is_flag=True, help="Replace existing files.")
def slurm(  # noqa: PLR0913  one for each option
    settings: CommandOptions,
    *,
    scripts: tuple[str, ...],
    map_file: str | None,
    env_file: str | None,
    accounts: str | None,
    sacct: str | None,
    to: str | None,
    force: bool,
    **options: str | None,
) -> None:
    """Convert batch scripts to Runs, accounts to Budgets, or past jobs to a trace.

    Directives are read as sbatch reads them. A script runs unchanged in every pod, in the image that you
    name; srun and the SLURM_ variables are emulated. Settings without an equivalent are listed on stderr.
    """
    from jobtree.api.documents.struct_decoder import decode_struct
    from jobtree.cli.source.manifests import read_file
    from jobtree.cli.tasks.import_output import ImportOutput
    from jobtree.importers.slurm.account_importer import convert_accounts
    from jobtree.importers.slurm.sacct_importer import convert_sacct
    from jobtree.importers.slurm.script_importer import convert_slurm
    from jobtree.importers.slurm.script_request import CallerOptions, read_environment
    from jobtree.importers.slurm.site_mapping import SlurmMap, read_map

    if sum(map(bool, (scripts, accounts, sacct))) != 1:
        raise CommandError(Exit.USAGE, "give exactly one of: batch scripts, --accounts FILE, --sacct FILE")
    defaults = {"owner": options["owner"], "gpuType": options["gpu_type"]}
    decode_struct(defaults, SlurmMap, "the command line")
    mapping = SlurmMap() if map_file is None else read_map(*read_file(map_file))
    output = ImportOutput(settings, to, replace=force)
    if accounts:
        output.write(convert_accounts(*read_file(accounts), mapping, options["gpu_type"]))
    elif sacct:
        output.write_trace(*convert_sacct(*read_file(sacct), mapping, options["gpu_type"]))
    else:
        environment = dict(os.environ) if env_file is None else read_environment(*read_file(env_file))
        caller = CallerOptions(mapping, namespace=settings.namespace, environment=environment, **options)
        output.write(convert_slurm((read_file(path) for path in scripts), caller))
