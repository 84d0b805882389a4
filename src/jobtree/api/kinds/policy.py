"""The policy, and the documents Policy, Clock and BeaconValues of a state file.

Administrators write the policy with units (``minNotice: 5m``); the core reads it as integers.
"""

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from jobtree.api.documents.struct_decoder import decode_struct
from jobtree.api.kubernetes.pod_binding import Binding
from jobtree.api.kubernetes.pod_template_rules import grace_problems, template_problems
from jobtree.api.schema.object_meta import SIM_GROUP, VERSION, PodTemplate, Wire
from jobtree.api.schema.problems import ABSENT, InputError, Problem
from jobtree.api.schema.quantities import (
    DAY,
    HOUR,
    MILLI,
    MINUTE,
    SECOND,
    format_time,
    parse_duration,
    parse_milli,
    parse_time,
)
from jobtree.api.schema.scalars import Duration, FlavorName, Hex, Rate, ShortName, Time

SIM_API_VERSION = f"{SIM_GROUP}/{VERSION}"


PUBLICATION_DELAY_MS = 5 * SECOND
"""How long before an instant a round must be published so that its value is known everywhere by then."""


class Beacon(msgspec.Struct, frozen=True):
    """A public source of random values. Round 1 is published at its genesis, the next after each period."""

    name: str
    period_ms: int
    genesis_ms: int
    url: str = ""  # of a value, with {round} for the number of its round. Empty: values are not fetched

    def published_at(self, number: int) -> int:
        return self.genesis_ms + (number - 1) * self.period_ms

    def round_at(self, at: int) -> int:
        """Returns the last round published by that instant; 0 before the first."""
        return max(0, (at - self.genesis_ms) // self.period_ms + 1)

    def round_known_by(self, at: int) -> int:
        """Returns the last round whose value is known everywhere by that instant; 0 before the first."""
        return self.round_at(at - PUBLICATION_DELAY_MS)


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The policy (specification, section 14) in integers: milliseconds, thousandths of rates and prices."""

    prices_milli: dict[str, int] = {}
    spare_rate_milli: int = MILLI // 4
    opportunistic_rate_milli: int = 0
    structural_notice_ms: int = MINUTE
    min_notice_ms: int = 5 * MINUTE
    max_notice_ms: int = 30 * MINUTE
    min_runtime_ms: int = 2 * HOUR
    peace_ms: int = 2 * HOUR
    restart_cost_ms: int = 5 * MINUTE
    keep_idle_ms: int = 8 * HOUR
    sweep_ms: int = 5 * MINUTE
    promise_depth: int = 1000
    max_grace_ms: int = 5 * MINUTE
    node_grace_ms: int = 2 * MINUTE
    placement_grace_ms: int = 2 * MINUTE
    binding: Binding = "Auto"
    default_template: PodTemplate | None = None
    lease_retention_ms: int = 30 * DAY
    beacon: Beacon | None = None

    def price_milli(self, flavor: str) -> int:
        """Returns the thousandths of a credit that a GPU-hour of this flavor costs."""
        return self.prices_milli.get(flavor, MILLI)


Price = Annotated[
    Annotated[int, Meta(ge=0, le=999_999)] | Rate,
    Meta(description='credits for a GPU-hour, such as 3 or "2.5"'),
]


Depth = Annotated[int, Meta(ge=1, le=1_000_000, description="a whole number of at least 1, such as 1000")]


class BeaconSpec(Wire):
    """A beacon as administrators write it."""

    name: ShortName
    period: Duration
    genesis: Time
    url: Annotated[str, Meta(max_length=2048)] = ""


class PolicySpec(Wire):
    """The policy (specification, section 14) as administrators write it."""

    prices: Annotated[dict[FlavorName, Price], Meta(max_length=256)] = msgspec.field(default_factory=dict)
    spare_rate: Rate = "0.25"
    opportunistic_rate: Rate = "0"
    structural_notice: Duration = "1m"
    min_notice: Duration = "5m"
    max_notice: Duration = "30m"
    min_runtime: Duration = "2h"
    peace: Duration = "2h"
    restart_cost: Duration = "5m"
    keep_idle: Duration = "8h"
    sweep: Duration = "5m"
    promise_depth: Depth = 1000
    max_grace: Duration = "5m"
    node_grace: Duration = "2m"
    placement_grace: Duration = "2m"
    binding: Binding = "Auto"
    default_template: PodTemplate | None = None
    lease_retention: Duration = "30d"
    beacon: BeaconSpec | None = None


class _ClockSpec(Wire):
    now: Time


class _BeaconValuesSpec(Wire):
    name: ShortName
    values: dict[str, Hex] = msgspec.field(default_factory=dict)  # in hex, by number of the round


class _SimDocument(Wire):
    api_version: str
    kind: str
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)


class _PolicyDocument(_SimDocument, kw_only=True):
    spec: PolicySpec = PolicySpec()


class _ClockDocument(_SimDocument, kw_only=True):
    spec: _ClockSpec


class _BeaconValuesDocument(_SimDocument, kw_only=True):
    spec: _BeaconValuesSpec


def is_sim_document(document: dict[str, Any]) -> bool:
    """Whether this is a Policy, a Clock or BeaconValues."""
    version = document.get("apiVersion")
    return isinstance(version, str) and version.partition("/")[0] == SIM_GROUP


def parse_policy(document: dict[str, Any], where: str) -> Policy:
    """Returns the policy in a document of kind Policy. Raises InputError."""
    _check_kind(document, "Policy", where)
    return build_policy(decode_struct(document, _PolicyDocument, f"{where}, Policy").spec, f"{where}, Policy")


def build_policy(spec: PolicySpec, where: str) -> Policy:
    """Converts a policy to integers. Raises InputError if it breaks a rule."""
    policy = Policy(
        prices_milli={flavor: parse_milli(str(price)) for flavor, price in spec.prices.items()},
        spare_rate_milli=parse_milli(spec.spare_rate),
        opportunistic_rate_milli=parse_milli(spec.opportunistic_rate),
        structural_notice_ms=parse_duration(spec.structural_notice),
        min_notice_ms=parse_duration(spec.min_notice),
        max_notice_ms=parse_duration(spec.max_notice),
        min_runtime_ms=parse_duration(spec.min_runtime),
        peace_ms=parse_duration(spec.peace),
        restart_cost_ms=parse_duration(spec.restart_cost),
        keep_idle_ms=parse_duration(spec.keep_idle),
        sweep_ms=parse_duration(spec.sweep),
        promise_depth=spec.promise_depth,
        max_grace_ms=parse_duration(spec.max_grace),
        node_grace_ms=parse_duration(spec.node_grace),
        placement_grace_ms=parse_duration(spec.placement_grace),
        binding=spec.binding,
        default_template=spec.default_template,
        lease_retention_ms=parse_duration(spec.lease_retention),
        beacon=None if spec.beacon is None else _beacon(spec.beacon),
    )
    if problems := list(_problems(policy, spec)):
        raise InputError(where, problems)
    return policy


def _beacon(spec: BeaconSpec) -> Beacon:
    return Beacon(spec.name, parse_duration(spec.period), parse_time(spec.genesis), spec.url)


def parse_clock(document: dict[str, Any], where: str) -> int:
    """Returns the instant in a document of kind Clock, in milliseconds. Raises InputError."""
    _check_kind(document, "Clock", where)
    return parse_time(decode_struct(document, _ClockDocument, f"{where}, Clock").spec.now)


def parse_beacon_values(document: dict[str, Any], where: str) -> dict[tuple[str, int], str]:
    """Returns the values in a document of kind BeaconValues, by beacon and round. Raises InputError."""
    _check_kind(document, "BeaconValues", where)
    spec = decode_struct(document, _BeaconValuesDocument, f"{where}, BeaconValues").spec
    rule = "must be a round, counted from 1, and its value in hex, two digits for each byte"
    problems = [
        Problem(f"spec.values[{number}]", value, rule)
        for number, value in spec.values.items()
        if not number.isdecimal() or not int(number) or not value or len(value) % 2
    ]
    if problems:
        raise InputError(f"{where}, BeaconValues", problems)
    return {(spec.name, int(number)): value for number, value in spec.values.items()}


def clock_document(now_ms: int) -> dict[str, Any]:
    """Returns the Clock with this instant."""
    return {"apiVersion": SIM_API_VERSION, "kind": "Clock", "spec": {"now": format_time(now_ms)}}


def _check_kind(document: dict[str, Any], kind: str, where: str) -> None:
    for field, expected in (("apiVersion", SIM_API_VERSION), ("kind", kind)):
        value = document.get(field, ABSENT)
        if value != expected:
            raise InputError(where, [Problem(field, value, f"must be {expected}")])


def _problems(policy: Policy, spec: PolicySpec) -> Iterator[Problem]:
    for field, rate, written in (
        ("spec.spareRate", policy.spare_rate_milli, spec.spare_rate),
        ("spec.opportunisticRate", policy.opportunistic_rate_milli, spec.opportunistic_rate),
    ):
        if rate > MILLI:
            yield Problem(field, written, "must be at most 1, the rate of an active GPU")
    if policy.min_notice_ms > policy.max_notice_ms:
        yield Problem("spec.minNotice", spec.min_notice, f"must be at most maxNotice ({spec.max_notice})")
    if policy.sweep_ms <= 0:
        yield Problem("spec.sweep", spec.sweep, "must be more than 0")
    if policy.beacon is not None and policy.beacon.period_ms <= 0 and spec.beacon is not None:
        yield Problem("spec.beacon.period", spec.beacon.period, "must be more than 0")
    if policy.beacon is not None and policy.beacon.url:
        url = policy.beacon.url
        if not url.startswith(("https://", "http://")) or "{round}" not in url:
            yield Problem("spec.beacon.url", url, "must be an http or https address with {round} in it")
    if spec.default_template is not None:
        yield from template_problems("spec.defaultTemplate", spec.default_template)
        yield from grace_problems("spec.defaultTemplate", spec.default_template, policy.max_grace_ms)
