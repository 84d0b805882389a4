import time

import msgspec
import pytest

from jobtree.api.kinds.lease import Lease
from jobtree.api.kinds.run import Run
from jobtree.api.schema.problems import InputError
from jobtree.api.validation.object_parser import parse_object, to_document
from tests.unit.api.samples import BUDGET, LEASE, RUN, SAMPLES, TREE, Doc, changed, refusals

OWNER_RULE = "must be a team as a path of lower-case names, such as org:ai:rai:sys"
INVALID_FIELDS: list[tuple[Doc, dict[str, object], str]] = [
    (BUDGET, {"spec.owner": None}, "spec.owner: is required"),
    (BUDGET, {"spec": None}, "spec: is required"),
    (BUDGET, {"metadata.name": None}, "metadata.name: is required"),
    (
        BUDGET,
        {"metadata.name": "Rai"},
        'metadata.name: "Rai" is not allowed: must be a name of lower-case letters, digits, - and .',
    ),
    (BUDGET, {"spec.parentz": []}, "spec.parentz: is not a known field; did you mean parents?"),
    (BUDGET, {"spec.priority": 3}, "spec.priority: is not a known field"),
    (BUDGET, {"specs": {}}, "specs: is not a known field; did you mean spec?"),
    (
        BUDGET,
        {"spec.envelopes[0].maxGPUhours": 3},
        "spec.envelopes[0].maxGPUhours: is not a known field; did you mean maxGPUHours?",
    ),
    (
        BUDGET,
        {"spec.envelopes[0].concurrency": "8"},
        'spec.envelopes[0].concurrency: "8" is not allowed: must be a whole number',
    ),
    (
        BUDGET,
        {"spec.envelopes[0].concurrency": 1.5},
        "spec.envelopes[0].concurrency: 1.5 is not allowed: must be a whole number",
    ),
    (
        BUDGET,
        {"spec.envelopes[0].concurrency": True},
        "spec.envelopes[0].concurrency: true is not allowed: must be a whole number",
    ),
    (
        BUDGET,
        {"spec.envelopes[0].concurrency": 0},
        "spec.envelopes[0].concurrency: 0 is not allowed: must be at least 1",
    ),
    (
        BUDGET,
        {"spec.envelopes[0].concurrency": 10**30},
        f"spec.envelopes[0].concurrency: {10**30} is not allowed: must be at most 1000000",
    ),
    (
        BUDGET,
        {"spec.envelopes[0].sharing": "public"},
        'spec.envelopes[0].sharing: "public" is not allowed: must be one of family, none',
    ),
    (
        BUDGET,
        {"spec.envelopes[0].selector": {"a b": "c"}},
        (
            "spec.envelopes[0].selector['a b']: \"a b\" is not allowed: "
            "the key must be the key of a node label, such as region or example.com/zone"
        ),
    ),
    (
        BUDGET,
        {"spec.envelopes[0].selector": {"region": 5}},
        (
            "spec.envelopes[0].selector['region']: 5 is not allowed: "
            "must be the value of a node label, or * for any"
        ),
    ),
    (
        BUDGET,
        {"spec.envelopes[0].lending": {"allow": "yes"}},
        'spec.envelopes[0].lending.allow: "yes" is not allowed: must be true or false',
    ),
    (
        BUDGET,
        {"spec.envelopes[0].lending": {"to": ["org:*:a"]}},
        (
            'spec.envelopes[0].lending.to[0]: "org:*:a" is not allowed: '
            "must be an owner such as org:ai:rai, all below one (org:ai:*), or * for everybody"
        ),
    ),
    (
        BUDGET,
        {"spec.envelopes[0].start": "2026-02-29T00:00:00Z"},
        (
            'spec.envelopes[0].start: "2026-02-29T00:00:00Z" is not allowed: '
            "must be an RFC 3339 time such as 2026-01-05T09:00:00Z"
        ),
    ),
    (BUDGET, {"spec.envelopes": {"a": 1}}, 'spec.envelopes: {"a": 1} is not allowed: must be a list'),
    (BUDGET, {"spec.envelopes": ["a"]}, 'spec.envelopes[0]: "a" is not allowed: must be a mapping'),
    (
        BUDGET,
        {"spec.owner": "org:ai\n"},
        f'spec.owner: "org:ai\\n" is not allowed: {OWNER_RULE}',
    ),
    (
        BUDGET,
        {"spec.owner": "o" * 300},
        f'spec.owner: "{"o" * 78}… is not allowed: must have at most 253 characters',
    ),
    (
        RUN,
        {"spec.runtime": {"checkpoint": "10 minutes"}},
        (
            'spec.runtime.checkpoint: "10 minutes" is not allowed: '
            "must be a duration such as 30m, 1h30m, 12h or 7d"
        ),
    ),
    (
        LEASE,
        {"spec.rate": 0.25},
        (
            "spec.rate: 0.25 is not allowed: "
            'must be a decimal in quotes with at most three places, such as "0.25"'
        ),
    ),
    (LEASE, {"spec.slots": []}, "spec.slots: [] is not allowed: must not be empty"),
    (
        LEASE,
        {"spec.slots": ["gpu-a-01"]},
        (
            'spec.slots[0]: "gpu-a-01" is not allowed: '
            "must be a slot such as gpu-a-01#3, or a range of one node's slots such as gpu-a-01#0-7"
        ),
    ),
    (
        TREE,
        {"spec.stages": [{"name": f"s{n}", "resources": {"totalGPUs": 0}} for n in range(500)]},
        "spec.stages: a list of 500 is not allowed: must have at most 64 items, but has 500",
    ),
    (
        TREE,
        {"spec.stages[0].owner": "org:ai"},
        "spec.stages[0].owner: a stage cannot have an owner: set it for the tree",
    ),
    (
        TREE,
        {"spec.stages[0].funding": {"sponsors": ["org:ai"]}},
        "spec.stages[0].funding.sponsors: a stage cannot have sponsors: set them for the tree",
    ),
    (
        TREE,
        {"spec.stages[0].stages": [{"name": "a", "stages": []}]},
        "spec.stages[0].stages[0].stages: a tree has at most two levels of stages",
    ),
]


@pytest.mark.parametrize(
    "document", SAMPLES, ids=lambda document: f"{document['kind']}-{document['metadata']['name']}"
)
def test_parsed_sample_is_converted_back_unchanged(document: Doc) -> None:
    assert to_document(parse_object(document, "test")) == document


@pytest.mark.parametrize(
    ("document", "changes", "line"), INVALID_FIELDS, ids=[line[:60] for _, _, line in INVALID_FIELDS]
)
def test_invalid_field_is_refused_with_value_and_rule(
    document: Doc, changes: dict[str, object], line: str
) -> None:
    assert refusals(changed(document, changes)) == [line]


def test_refusal_lists_all_problems() -> None:
    wrong = changed(BUDGET, {"spec.owner": 5, "spec.envelopes[0].concurrency": 0, "spec.x": 1})
    with pytest.raises(InputError) as refused:
        parse_object(wrong, "budgets.yaml, document 2")
    assert str(refused.value) == (
        "budgets.yaml, document 2, Budget rai:\n"
        f"  spec.owner: 5 is not allowed: {OWNER_RULE}\n"
        "  spec.envelopes[0].concurrency: 0 is not allowed: must be at least 1\n"
        "  spec.x: is not a known field"
    )


@pytest.mark.parametrize(
    ("document", "line"),
    [
        ({"kind": "Run"}, "apiVersion: must be rq.davidlangworthy.io/v1"),
        (
            {"apiVersion": "rq.davidlangworthy.io/v2", "kind": "Run"},
            'apiVersion: "rq.davidlangworthy.io/v2" is not allowed: must be rq.davidlangworthy.io/v1',
        ),
        (
            {**RUN, "kind": "Job"},
            'kind: "Job" is not allowed: must be one of Budget, Run, Reservation, Lease',
        ),
        (
            {**RUN, "kind": ["Run"]},
            'kind: ["Run"] is not allowed: must be one of Budget, Run, Reservation, Lease',
        ),
        ({**RUN, "metadata": None}, "metadata: is required"),
        ({**RUN, "metadata": "train"}, 'metadata: "train" is not allowed: must be a mapping'),
    ],
)
def test_document_of_another_kind_is_refused(document: Doc, line: str) -> None:
    assert refusals(document) == [line]


def test_null_counts_as_absent() -> None:
    document = changed(RUN, {"metadata.creationTimestamp": None})
    document["metadata"]["creationTimestamp"] = None
    document["spec"].update({"locality": None, "funding": None, "malleable": None, "stages": None})
    document["status"] = None
    assert parse_object(document, "test") == parse_object(RUN, "test")


def test_metadata_may_have_unknown_fields() -> None:
    document = changed(RUN, {"metadata.managedFields": [{"manager": "kubectl"}], "metadata.uid": "u1"})
    assert parse_object(document, "test").metadata.uid == "u1"


def test_document_has_no_defaults_and_no_empty_status() -> None:
    spelled_out = changed(RUN, {"spec.runtime": {"maxRestarts": 3, "requeue": True}, "status": {}})
    document = to_document(parse_object(spelled_out, "test"))
    assert document["spec"]["runtime"] == {}
    assert "status" not in document
    assert list(document) == ["apiVersion", "kind", "metadata", "spec"]


def test_empty_parents_are_not_absent_parents() -> None:
    empty = to_document(parse_object(changed(BUDGET, {"spec.parents": []}), "test"))
    assert empty["spec"]["parents"] == []
    assert "parents" not in to_document(parse_object(BUDGET, "test"))["spec"]


def test_deeply_nested_document_is_refused() -> None:
    deep: object = 1
    for _ in range(100_000):
        deep = [deep]
    assert refusals(changed(RUN, {"spec.locality": deep})) == ["is nested too deeply"]


def test_wire_names_are_those_of_the_specification() -> None:
    names = {field.encode_name for kind in (Run, Lease) for field in _all_fields(kind)}
    wanted = {
        "gpuType",
        "totalGPUs",
        "gpusPerPod",
        "groupGPUs",
        "maxBorrowGPUs",
        "maxGPUHours",
        "class",
        "with",
    }
    assert wanted <= names


def _all_fields(kind: type[msgspec.Struct]) -> list[msgspec.inspect.Field]:
    fields: list[msgspec.inspect.Field] = []
    types: list[object] = [msgspec.inspect.type_info(kind)]
    while types:
        current = types.pop()
        if isinstance(current, msgspec.inspect.StructType):
            fields.extend(current.fields)
            types.extend(field.type for field in current.fields)
        elif isinstance(current, msgspec.inspect.UnionType):
            types.extend(current.types)
        elif isinstance(current, (msgspec.inspect.VarTupleType, msgspec.inspect.Metadata)):
            types.append(getattr(current, "item_type", None) or getattr(current, "type", None))
    return fields


def test_six_thousand_leases_are_parsed_in_less_than_a_second() -> None:
    began = time.process_time()
    for number in range(6_000):
        parse_object({**LEASE, "metadata": {"name": f"lease-{number}"}}, "test")
    assert time.process_time() - began < 1
