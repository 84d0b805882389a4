r"""The scalar types of the four kinds, with the bounds that the CRDs also have.

A value is kept as text (``"30m"``, ``"2026-01-05T09:00:00Z"``, ``"0.25"``);
``jobtree.api.schema.quantities`` converts it to integers. The description of a type appears in refusals and
in ``kubectl explain``.

Patterns end in ``\Z``, since ``$`` matches before a final newline in Python. In the CRDs they end in ``$``.
"""

from typing import Annotated

from msgspec import Meta

_LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_SUBDOMAIN = r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?"
_QUALIFIED = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
# Only days that exist, so that every match can be converted.
_DATE = (
    r"([12][0-9]{3}-(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])"
    r"|[12][0-9]{3}-(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    r"|[12][0-9]{3}-02-(0[1-9]|1[0-9]|2[0-8])"
    r"|[12][0-9](0[48]|[13579][26]|[2468][048])-02-29"
    r"|(1[26]|2[048])00-02-29)"
)

DURATION_PATTERN = r"^([0-9]{1,5}d)?([0-9]{1,5}h)?([0-9]{1,6}m)?([0-9]{1,8}s)?([0-9]{1,9}ms)?\Z"
TIME_PATTERN = (
    rf"^{_DATE}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{{1,9}})?"
    r"(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])\Z"
)
OWNER_PATTERN = rf"^{_LABEL}(:{_LABEL})*\Z"

MAX_GPUS = 1_000_000
MAX_GPU_HOURS = 10_000_000_000

Duration = Annotated[
    str,
    Meta(
        pattern=DURATION_PATTERN,
        min_length=2,
        max_length=32,
        description="a duration such as 30m, 1h30m, 12h or 7d",
    ),
]
Time = Annotated[
    str,
    Meta(
        pattern=TIME_PATTERN,
        max_length=40,
        description="an RFC 3339 time such as 2026-01-05T09:00:00Z",
    ),
]
Decimal = Annotated[
    str,
    Meta(
        pattern=r"^[0-9]{1,12}(\.[0-9]{1,6})?\Z",
        max_length=19,
        description='a decimal in quotes, such as "0.25"',
    ),
]
GpuSeconds = Annotated[
    str,
    Meta(
        pattern=r"^[0-9]{1,18}(\.[0-9]{1,6})?\Z",
        max_length=25,
        description='GPU-seconds in quotes, exact to the millionth, such as "3600.25"',
    ),
]
Rate = Annotated[
    str,
    Meta(
        pattern=r"^[0-9]{1,6}(\.[0-9]{1,3})?\Z",
        max_length=10,
        description='a decimal in quotes with at most three places, such as "0.25"',
    ),
]
Owner = Annotated[
    str,
    Meta(
        pattern=OWNER_PATTERN,
        min_length=1,
        max_length=253,
        description="a team as a path of lower-case names, such as org:ai:rai:sys",
    ),
]
Lendee = Annotated[
    str,
    Meta(
        pattern=rf"^(\*|{_LABEL}(:{_LABEL})*(:\*)?)\Z",
        min_length=1,
        max_length=253,
        description="an owner such as org:ai:rai, all below one (org:ai:*), or * for everybody",
    ),
]
Name = Annotated[
    str,
    Meta(
        pattern=rf"^{_SUBDOMAIN}\Z",
        min_length=1,
        max_length=253,
        description="a name of lower-case letters, digits, - and .",
    ),
]
ShortName = Annotated[
    str,
    Meta(
        pattern=rf"^{_LABEL}\Z",
        min_length=1,
        max_length=63,
        description="a name of lower-case letters, digits and -, at most 63 long",
    ),
]
FlavorName = Annotated[
    str,
    Meta(
        pattern=rf"^{_QUALIFIED}\Z",
        min_length=1,
        max_length=63,
        description="the value of the node label gpu.flavor, such as H100-80GB",
    ),
]
LabelKey = Annotated[
    str,
    Meta(
        pattern=rf"^({_SUBDOMAIN}/)?{_QUALIFIED}\Z",
        min_length=1,
        max_length=317,
        description="the key of a node label, such as region or example.com/zone",
    ),
]
SelectorValue = Annotated[
    str,
    Meta(
        pattern=rf"^(\*|({_QUALIFIED})?)\Z",
        max_length=63,
        description="the value of a node label, or * for any",
    ),
]
SlotRange = Annotated[
    str,
    Meta(
        pattern=rf"^{_SUBDOMAIN}#[0-9]{{1,3}}(-[0-9]{{1,3}})?\Z",
        max_length=261,
        description="a slot such as gpu-a-01#3, or a range of one node's slots such as gpu-a-01#0-7",
    ),
]
Text = Annotated[str, Meta(max_length=4096)]
Word = Annotated[str, Meta(max_length=63)]
Uid = Annotated[str, Meta(max_length=64)]
Hex = Annotated[str, Meta(pattern=r"^[0-9a-f]*\Z", max_length=256, description="lower-case hex digits")]

Count = Annotated[int, Meta(ge=0, le=MAX_GPUS)]
PositiveCount = Annotated[int, Meta(ge=1, le=MAX_GPUS)]
GpuHours = Annotated[int, Meta(ge=0, le=MAX_GPU_HOURS)]
Tally = Annotated[int, Meta(ge=0, le=2**53)]
