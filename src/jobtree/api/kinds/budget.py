"""Budget: the GPUs and GPU-hours that a team may use, in which windows, on which nodes, and its borrowers."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta, field

from jobtree.api.kinds.carried_sums import CarriedUses
from jobtree.api.schema.cel_rules import SET, Rule, if_has
from jobtree.api.schema.object_meta import Conditions, ObjectMeta, Wire
from jobtree.api.schema.scalars import (
    Count,
    Decimal,
    FlavorName,
    GpuHours,
    LabelKey,
    Lendee,
    Owner,
    PositiveCount,
    SelectorValue,
    ShortName,
    Tally,
    Time,
)

FITS_WINDOW = (
    "self.maxGPUHours * 3600000 <= self.concurrency"
    " * ((int(timestamp(self.end)) - int(timestamp(self.start))) * 1000"
    " + timestamp(self.end).getMilliseconds() - timestamp(self.start).getMilliseconds())"
)
NAMES_ENVELOPES = (
    "[has(self.envelopes) ? self.envelopes.map(e, e.name) : []]"
    ".all(names, self.aggregateCaps.all(c, c.envelopes.all(n, n in names)))"
)
KEEPS_FLAVOR = (
    "self.aggregateCaps.all(c, !has(c.flavor)"
    " || self.envelopes.all(e, e.flavor == c.flavor || !(e.name in c.envelopes)))"
)
COUNTS_ALIKE = (
    "has(c.flavor) || !(has(c.maxConcurrency) || has(c.maxGPUHours))"
    " || self.envelopes.all(e, e.name != c.envelopes[0]"
    " || self.envelopes.all(d, d.flavor == e.flavor || !(d.name in c.envelopes)))"
)


class Lending(Wire):
    allow: bool = False
    to: Annotated[tuple[Lendee, ...], Meta(max_length=64)] = ()
    max_concurrency: Count | None = None
    max_gpu_hours: GpuHours | None = None


class Envelope(Wire):
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            if_has("start", if_has("end", "timestamp(self.end) > timestamp(self.start)")),
            "end must be after start",
        ),
        Rule(
            if_has("start", if_has("end", if_has("maxGPUHours", FITS_WINDOW))),
            "maxGPUHours must be at most concurrency × window",
        ),
    )

    name: ShortName
    flavor: FlavorName
    concurrency: PositiveCount
    selector: Annotated[dict[LabelKey, SelectorValue], Meta(max_length=16)] = field(default_factory=dict)
    max_gpu_hours: GpuHours | None = None
    max_credits: GpuHours | None = None
    start: Time | None = None
    end: Time | None = None
    sharing: Literal["family", "none"] = "family"
    lending: Lending | None = None


class AggregateCap(Wire):
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.maxConcurrency) || has(self.maxGPUHours) || has(self.maxCredits)",
            "a cap must set maxConcurrency, maxGPUHours or maxCredits",
        ),
    )

    name: ShortName
    envelopes: Annotated[tuple[ShortName, ...], Meta(min_length=1, max_length=64, extra_json_schema=SET)]
    flavor: FlavorName | None = None
    max_concurrency: Count | None = None
    max_gpu_hours: GpuHours | None = None
    max_credits: GpuHours | None = None


class BudgetSpec(Wire):
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(if_has("parents", "!(self.owner in self.parents)"), "an owner cannot be its own parent"),
        Rule(
            if_has("aggregateCaps", NAMES_ENVELOPES),
            "aggregateCaps must name existing envelopes of this Budget",
        ),
        Rule(
            if_has("aggregateCaps", if_has("envelopes", KEEPS_FLAVOR)),
            "aggregateCaps with a flavor must name envelopes of that flavor",
        ),
        Rule(
            if_has("aggregateCaps", if_has("envelopes", f"self.aggregateCaps.all(c, {COUNTS_ALIKE})")),
            "a cap over several flavors counts credits: it can only set maxCredits",
        ),
    )

    owner: Owner
    parents: Annotated[tuple[Owner, ...], Meta(max_length=16, extra_json_schema=SET)] | None = None
    envelopes: Annotated[tuple[Envelope, ...], Meta(max_length=64)] = ()
    aggregate_caps: Annotated[tuple[AggregateCap, ...], Meta(max_length=16)] = ()


class ClassUse(Wire):
    """The usage of one envelope or cap, by class of lease."""

    owned: Decimal = "0"
    shared: Decimal = "0"
    borrowed: Decimal = "0"
    spare: Decimal = "0"
    opportunistic: Decimal = "0"


class Usage(Wire):
    """The usage of an envelope or cap and what is left of it, in GPUs, GPU-hours and credits.

    What is free or left is what a Run that arrives now could really get.
    """

    name: ShortName
    used_gpus: Decimal = "0"
    free_gpus: Decimal | None = None  # of an envelope: for Runs of its owner
    family_free_gpus: Decimal | None = None  # for Runs of other owners of the family
    lendable_gpus: Decimal | None = None  # for sponsored Runs
    limited_by: Annotated[str, Meta(max_length=512)] = ""  # why freeGPUs is less than the concurrency
    used_gpu_hours: Decimal = "0"
    committed_gpu_hours: Decimal | None = None  # of Runs with a maxDuration, and of promises
    left_gpu_hours: Decimal | None = None
    used_credits: Decimal = "0"
    left_credits: Decimal | None = None
    gpus_by_class: ClassUse | None = None
    gpu_hours_by_class: ClassUse | None = None


class BudgetStatus(Wire):
    envelopes: Annotated[tuple[Usage, ...], Meta(max_length=64)] = ()
    aggregate_caps: Annotated[tuple[Usage, ...], Meta(max_length=16)] = ()
    carried: CarriedUses | None = None
    conditions: Conditions = ()
    observed_generation: Tally = 0


class Budget(Wire):
    KIND: ClassVar[str] = "Budget"

    metadata: ObjectMeta
    spec: BudgetSpec
    status: BudgetStatus = BudgetStatus()
