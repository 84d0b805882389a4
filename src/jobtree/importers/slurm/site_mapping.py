"""The mapping file: what the names of a Slurm site mean in Jobtree.

Partitions, features and GPU types become flavors and node labels; accounts and QOS become owners and funding;
job numbers become names of Runs. The file is YAML, and each part of it is optional:

    image: registry.example.com/lab/train:1
    owner: org:lab                       # if the account has no entry
    gpus: {a100: A100-80GB}              # --gres=gpu:a100:4
    partitions:
      gpu: {gpuType: H100-80GB, gpusPerNode: 8, defaultTime: 1-00:00:00}
    constraints:
      nvlink: {nodeSelector: {fabric: nvlink}}
    accounts: {physics: org:science:physics}
    qos:
      scavenger: {allowOpportunistic: true}
    jobs: {"4711": prepare}              # --dependency=afterok:4711
    volumes:
      - {claim: home, mountPath: /home}
"""

from typing import Annotated

from msgspec import Meta, field

from jobtree.api.documents.document_stream import read_documents
from jobtree.api.documents.struct_decoder import decode_struct
from jobtree.api.schema.object_meta import Wire
from jobtree.api.schema.problems import InputError, Problem
from jobtree.api.schema.scalars import (
    Count,
    FlavorName,
    LabelKey,
    Name,
    Owner,
    PositiveCount,
    ShortName,
    Word,
)
from jobtree.importers.slurm.script.option_values import duration_ms

Labels = dict[LabelKey, Word]


class Feature(Wire):
    """What a node feature (--constraint) means."""

    gpu_type: FlavorName | None = None
    node_selector: Labels = field(default_factory=dict)


class Partition(Wire):
    """What a partition means. Times have the format of --time."""

    gpu_type: FlavorName | None = None
    gpus_per_node: PositiveCount | None = None
    default_time: str | int | None = None
    node_selector: Labels = field(default_factory=dict)
    allow_opportunistic: bool = False


class QosMapping(Wire):
    """What a QOS means: another owner, or other funding."""

    owner: Owner | None = None
    allow_opportunistic: bool = False
    allow_borrow: bool = False
    max_borrow_gpus: Count | None = None
    sponsors: Annotated[tuple[Owner, ...], Meta(max_length=16)] = ()


class Volume(Wire):
    """A volume claim that each pod mounts in place of the site's shared file system."""

    claim: Name
    mount_path: Annotated[
        str, Meta(pattern=r"^/[^:]*\Z", max_length=1024, description="a path such as /home")
    ]


class SlurmMap(Wire):
    image: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None
    owner: Owner | None = None
    gpu_type: FlavorName | None = None
    gpus: dict[str, FlavorName] = field(default_factory=dict)
    partitions: dict[str, Partition] = field(default_factory=dict)
    constraints: dict[str, Feature] = field(default_factory=dict)
    accounts: dict[str, Owner] = field(default_factory=dict)
    qos: dict[str, QosMapping] = field(default_factory=dict)
    jobs: dict[str, Name] = field(default_factory=dict)
    volumes: Annotated[tuple[Volume, ...], Meta(max_length=32)] = ()
    namespace: ShortName | None = None


def read_map(source: str, text: bytes) -> SlurmMap:
    """Reads a mapping file. Raises InputError with all problems."""
    documents = read_documents(text, source)
    if len(documents) != 1:
        raise InputError(source, [f"must have one mapping, but has {len(documents)} documents"])
    mapping = decode_struct(documents[0].body, SlurmMap, source)
    for name, partition in mapping.partitions.items():
        try:
            duration_ms(str(partition.default_time or 0))
        except ValueError as broken:
            problem = Problem(f"partitions[{name!r}].defaultTime", partition.default_time, str(broken))
            raise InputError(source, [problem]) from None
    return mapping
