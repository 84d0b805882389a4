"""The API group, object metadata and conditions, which all four kinds share."""

from typing import Annotated, Any, Literal, dataclass_transform

import msgspec
from msgspec import Meta

from jobtree.api.schema.packed_template import PackedTemplate
from jobtree.api.schema.pod_template_schema import TEMPLATE_SCHEMA
from jobtree.api.schema.scalars import Name, Tally, Text, Time, Word

GROUP = "rq.davidlangworthy.io"
VERSION = "v1"
API_VERSION = f"{GROUP}/{VERSION}"
SIM_GROUP = f"sim.{GROUP}"
LOST_WORK = f"{SIM_GROUP}/lost"  # annotation: GPU-milliseconds of work that was lost and done again


ACRONYMS = {"gpu": "GPU", "gpus": "GPUs"}


def wire_name(field: str) -> str:
    """Returns the name on the wire: ``maxGPUHours`` for ``max_gpu_hours``, ``with`` for ``with_``."""
    first, *rest = field.rstrip("_").split("_")
    return first + "".join(ACRONYMS.get(word, word.capitalize()) for word in rest)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Wire(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    rename=wire_name,
):
    """A struct of the API. Unknown fields are refused; a field with its default is omitted."""


class OwnerReference(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The part of the metadata that Jobtree reads. Other fields of a document stay as they are."""

    name: Name
    namespace: Word = ""
    uid: str = ""
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    generation: int = 0
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()


class Condition(Wire):
    """A metav1.Condition."""

    type: Word
    status: Literal["True", "False", "Unknown"]
    reason: Word
    message: Text = ""
    last_transition_time: Time | None = None
    observed_generation: Tally = 0


Conditions = Annotated[tuple[Condition, ...], Meta(max_length=16)]
PodTemplate = Annotated[dict[str, Any], Meta(extra_json_schema=TEMPLATE_SCHEMA)]
RunTemplate = Annotated[PackedTemplate, Meta(extra_json_schema=TEMPLATE_SCHEMA)]
