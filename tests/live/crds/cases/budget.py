"""Manifests of Budgets (specification, section 2)."""

from tests.live.crds.cases.case_types import Accepted, Refused, RefusedByValidator
from tests.live.crds.manifests import FLAVOR, budget, cap, envelope

YEAR = {"start": "2026-01-01T00:00:00Z", "end": "2027-01-01T00:00:00Z"}
DAY = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"}
EAST = envelope(name="east", flavor="A100-40GB")

LENDING = {"allow": True, "to": [f"org:team-{n}:*" for n in range(64)]}
LABELS = {f"example.com/label-{n}": "value" for n in range(16)}
MANY = [
    envelope(name=f"e{n}-{'x' * 59}"[:63], **YEAR, maxGPUHours=1, selector=LABELS, lending=LENDING)
    for n in range(64)
]
NAMES = [item["name"] for item in MANY]

ACCEPTED = [
    Accepted(
        "a budget at all size limits",
        budget(
            *MANY,
            parents=[f"org:parent-{n}" for n in range(16)],
            aggregateCaps=[
                cap(name=f"c{n}", flavor=[None, FLAVOR][n % 2], envelopes=NAMES) for n in range(16)
            ],
        ),
    ),
    Accepted("a budget may have no envelopes", budget(envelopes=[])),
    Accepted("envelopes may be left out", budget(envelopes=None)),
    Accepted("an owner may be a single name", budget(owner="org")),
    Accepted("the list of parents may be empty", budget(parents=[])),
    Accepted("a budget may have many parents", budget(parents=["org:ai", "org:vision"])),
    Accepted("a selector may match anything", budget(envelope(selector={"region": "*", "cluster": "gpu-a"}))),
    Accepted("a selector's key may be qualified", budget(envelope(selector={"example.com/zone": "b"}))),
    Accepted("a window may be open on one side", budget(envelope(end=YEAR["end"], maxGPUHours=10**9))),
    Accepted("hours may fill the window exactly", budget(envelope(**DAY, maxGPUHours=192))),
    Accepted("hours may be 0", budget(envelope(**DAY, maxGPUHours=0))),
    Accepted(
        "times of different zones are compared as instants",
        budget(envelope(start="2026-01-01T00:00:00+02:00", end="2025-12-31T23:00:00Z", maxGPUHours=8)),
    ),
    Accepted("credits may exceed the window", budget(envelope(**DAY, maxCredits=10**6))),
    Accepted("sharing may be none", budget(envelope(sharing="none"))),
    Accepted(
        "lending names owners, prefixes or all owners",
        budget(
            envelope(
                lending={
                    "allow": True,
                    "to": ["org:vision", "org:ai:*", "*"],
                    "maxConcurrency": 4,
                    "maxGPUHours": 0,
                }
            )
        ),
    ),
    Accepted("lending may name no borrower", budget(envelope(lending={"allow": True}))),
    Accepted("a cap of one flavor", budget(envelope(), aggregateCaps=[cap()])),
    Accepted(
        "a cap without flavor may span flavors, in credits",
        budget(
            envelope(),
            EAST,
            aggregateCaps=[cap(flavor=None, envelopes=["west", "east"], maxConcurrency=None, maxCredits=500)],
        ),
    ),
    Accepted(
        "envelopes may overlap in everything but their name",
        budget(envelope(), envelope(name="west-2")),
    ),
]

REFUSED = [
    Refused("owner is required", budget(owner=None), "spec.owner", "[Rr]equired"),
    Refused("owner is a path", budget(owner="org::ai"), "spec.owner", "should match"),
    Refused("owner is lower case", budget(owner="Org:AI"), "spec.owner", "should match"),
    Refused("owner must not end with a colon", budget(owner="org:ai:"), "spec.owner", "should match"),
    Refused("owner must not end with a line break", budget(owner="org:ai\n"), "spec.owner", "should match"),
    Refused("owner is at most 253 long", budget(owner="o" * 254), "spec.owner", "253"),
    Refused("parents are owners", budget(parents=["org:*"]), "spec.parents[0]", "should match"),
    Refused("an owner is not its own parent", budget(parents=["org:ai:rai"]), "spec", "own parent"),
    Refused(
        "a parent is named once", budget(parents=["org:ai", "org:ai"]), "spec.parents", "[Dd]uplicate|once"
    ),
    Refused("name is required", budget(envelope(name=None)), "spec.envelopes[0].name", "[Rr]equired"),
    Refused("flavor is required", budget(envelope(flavor=None)), "spec.envelopes[0].flavor", "[Rr]equired"),
    Refused(
        "flavor is not empty", budget(envelope(flavor="")), "spec.envelopes[0].flavor", "at least 1|match"
    ),
    Refused(
        "concurrency is required",
        budget(envelope(concurrency=None)),
        "spec.envelopes[0].concurrency",
        "[Rr]equired",
    ),
    Refused(
        "concurrency is positive",
        budget(envelope(concurrency=0)),
        "spec.envelopes[0].concurrency",
        "greater than.* 1",
    ),
    Refused(
        "concurrency is an integer",
        budget(envelope(concurrency=1.5)),
        "spec.envelopes[0].concurrency",
        "integer",
    ),
    Refused(
        "concurrency is a number",
        budget(envelope(concurrency="8")),
        "spec.envelopes[0].concurrency",
        "integer",
    ),
    Refused(
        "hours are not negative",
        budget(envelope(maxGPUHours=-1)),
        "spec.envelopes[0].maxGPUHours",
        "greater than.* 0",
    ),
    Refused(
        "credits are not negative",
        budget(envelope(maxCredits=-1)),
        "spec.envelopes[0].maxCredits",
        "greater than.* 0",
    ),
    Refused(
        "times are RFC 3339",
        budget(envelope(start="2026-01-01")),
        "spec.envelopes[0].start",
        "match|at least 20",
    ),
    Refused(
        "a date must exist",
        budget(envelope(start="2026-02-30T00:00:00Z")),
        "spec.envelopes[0].start",
        "match|at least 20",
    ),
    Refused(
        "an hour of the day must exist",
        budget(envelope(end="2026-02-03T25:00:00Z")),
        "spec.envelopes[0].end",
        "match",
    ),
    Refused(
        "end comes after start",
        budget(envelope(start=YEAR["end"], end=YEAR["start"])),
        "spec.envelopes[0]",
        "end must be after start",
    ),
    Refused(
        "end is not start",
        budget(envelope(start=YEAR["end"], end=YEAR["end"])),
        "spec.envelopes[0]",
        "after start",
    ),
    Refused(
        "end comes after start as an instant, not as text",
        budget(envelope(start="2026-01-01T00:00:00Z", end="2026-01-01T01:00:00+02:00")),
        "spec.envelopes[0]",
        "after start",
    ),
    Refused(
        "hours fit the window",
        budget(envelope(**DAY, maxGPUHours=193)),
        "spec.envelopes[0]",
        "maxGPUHours.*concurrency × window",
    ),
    Refused(
        "hours fit a window of minutes",
        budget(envelope(start="2026-01-01T00:00:00Z", end="2026-01-01T00:07:29.999Z", maxGPUHours=1)),
        "spec.envelopes[0]",
        "maxGPUHours.*concurrency × window",
    ),
    Refused(
        "hours fit a window that starts within a second",
        budget(envelope(start="2026-01-01T00:00:00.999Z", end="2026-01-01T00:07:30Z", maxGPUHours=1)),
        "spec.envelopes[0]",
        "maxGPUHours.*concurrency × window",
    ),
    Refused(
        "times have upper-case T and Z",
        budget(envelope(start="2026-01-01t00:00:00z", end=YEAR["end"])),
        "spec.envelopes[0].start",
        "match",
    ),
    Refused(
        "sharing is family or none",
        budget(envelope(sharing="public")),
        "spec.envelopes[0].sharing",
        "family.*none",
    ),
    Refused("names are unique", budget(envelope(), envelope()), "spec.envelopes", "[Dd]uplicate|unique"),
    Refused(
        "lending goes to owners",
        budget(envelope(lending={"allow": True, "to": ["org:*:rai"]})),
        "spec.envelopes[0].lending.to[0]",
        "should match",
    ),
    Refused(
        "a prefix ends with a colon",
        budget(envelope(lending={"allow": True, "to": ["org*"]})),
        "spec.envelopes[0].lending.to[0]",
        "should match",
    ),
    Refused(
        "lent concurrency is not negative",
        budget(envelope(lending={"allow": True, "maxConcurrency": -1})),
        "spec.envelopes[0].lending.maxConcurrency",
        "greater than.* 0",
    ),
    Refused(
        "values of a selector are label values",
        budget(envelope(selector={"region": "us west"})),
        "spec.envelopes[0].selector",
        "should match",
    ),
    Refused(
        "caps are named once",
        budget(aggregateCaps=[cap(), cap()]),
        "spec.aggregateCaps",
        "[Dd]uplicate|unique",
    ),
    Refused(
        "a cap names envelopes",
        budget(aggregateCaps=[cap(envelopes=[])]),
        "spec.aggregateCaps[0].envelopes",
        "1",
    ),
    Refused(
        "a cap names existing envelopes",
        budget(aggregateCaps=[cap(envelopes=["west", "east"])]),
        "spec",
        "existing envelopes",
    ),
    Refused(
        "a cap names envelopes of its flavor",
        budget(envelope(), EAST, aggregateCaps=[cap(envelopes=["west", "east"])]),
        "spec",
        "flavor",
    ),
    Refused(
        "a cap names an envelope once",
        budget(aggregateCaps=[cap(envelopes=["west", "west"])]),
        "spec.aggregateCaps[0].envelopes",
        "[Dd]uplicate|once|unique",
    ),
    Refused(
        "a cap over several flavors has credits, not GPUs",
        budget(envelope(), EAST, aggregateCaps=[cap(flavor=None, envelopes=["west", "east"])]),
        "spec",
        "credits",
    ),
    Refused("a budget has no unknown fields", budget(priority=3), "spec.priority", "unknown field"),
    Refused(
        "an envelope has no unknown fields",
        budget(envelope(weight=3)),
        "spec.envelopes[0].weight",
        "unknown field",
    ),
    Refused(
        "lending has no unknown fields",
        budget(envelope(lending={"allow": True, "ttl": "1h"})),
        "spec.envelopes[0].lending.ttl",
        "unknown field",
    ),
]

REFUSED_BY_VALIDATOR = [
    RefusedByValidator(
        "keys of a selector are label keys",
        budget(envelope(selector={"no key at all": "x"})),
        "spec.envelopes[0].selector",
        "the key of a node label",
    ),
]
