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

# site.yaml says what names of the site are here; every part is optional:
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
@click.option("--owner", metavar="OWNER", help="The team that pays where no account says otherwise.")
@click.option(
    "--gpu-type", metavar="FLAVOR", help="The kind of GPU where the script and the mapping do not say."
)
@click.option("--checkpoint", metavar="DURATION", help="How often the jobs save their state, such as 30m.")
@click.option(
    "--map", "map_file", metavar="FILE", type=click.Path(), help="What names of the site are here (YAML)."
)
@click.option(
    "--env-file",
    metavar="FILE",
    type=click.Path(),
    help="Lines NAME=VALUE in place of your environment, whose SBATCH_* override directives.",
)
@click.option("--accounts", metavar="FILE", type=click.Path(), help="Budgets from 'sacctmgr show assoc -p'.")
@click.option("--sacct", metavar="FILE", type=click.Path(), help="A trace for 'simulate' from 'sacct -p'.")
@click.option("--to", metavar="DIR", type=click.Path(), help="Write a file for each object, not to stdout.")
@click.option("--force", is_flag=True, help="Replace files that are there already.")
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
    **wishes: str | None,
) -> None:
    """Turn batch scripts into Runs, accounts into Budgets, or past jobs into a trace.

    Directives are read as sbatch reads them. A script runs unchanged, in every pod, in an image that you
    name: srun and the SLURM_ variables have stand-ins. What has no equivalent is listed on stderr.
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
        raise CommandError(
            Exit.USAGE, "name batch scripts, or --accounts FILE, or --sacct FILE: one of the three"
        )
    said = {"owner": wishes["owner"], "gpuType": wishes["gpu_type"]}
    decode_struct(said, SlurmMap, "the command line")
    mapping = SlurmMap() if map_file is None else read_map(*read_file(map_file))
    outlet = ImportOutput(settings, to, replace=force)
    if accounts:
        outlet.give(convert_accounts(*read_file(accounts), mapping, wishes["gpu_type"]))
    elif sacct:
        outlet.give_trace(*convert_sacct(*read_file(sacct), mapping, wishes["gpu_type"]))
    else:
        environment = dict(os.environ) if env_file is None else read_environment(*read_file(env_file))
        wanted = CallerOptions(mapping, namespace=settings.namespace, environment=environment, **wishes)
        outlet.give(convert_slurm((read_file(path) for path in scripts), wanted))
