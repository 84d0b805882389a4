import pytest

from jobtree.api.documents.document_stream import read_documents
from jobtree.api.kinds.policy import (
    Beacon,
    Policy,
    clock_document,
    is_sim_document,
    parse_beacon_values,
    parse_clock,
    parse_policy,
)
from jobtree.api.schema.problems import InputError
from jobtree.api.schema.quantities import DAY, HOUR, MINUTE, SECOND
from tests.unit.api.samples import RUN, Doc

VERSION = "sim.rq.davidlangworthy.io/v1"


def policy(text: str) -> Policy:
    (document,) = read_documents(f"apiVersion: {VERSION}\nkind: Policy\nspec:\n{text}", "f.yaml")
    return parse_policy(document.body, document.where)


def test_defaults_of_the_policy_are_those_of_the_specification() -> None:
    assert parse_policy({"apiVersion": VERSION, "kind": "Policy"}, "test") == Policy()
    assert Policy() == Policy(
        prices_milli={},
        spare_rate_milli=250,
        opportunistic_rate_milli=0,
        structural_notice_ms=1 * MINUTE,
        min_notice_ms=5 * MINUTE,
        max_notice_ms=30 * MINUTE,
        min_runtime_ms=2 * HOUR,
        max_grace_ms=5 * MINUTE,
        node_grace_ms=2 * MINUTE,
        default_template=None,
        lease_retention_ms=30 * DAY,
    )


def test_policy_is_converted_to_integers() -> None:
    parsed = policy(
        '  prices: {H100-80GB: 3, A100: "1.125"}\n'
        '  spareRate: "0.5"\n'
        "  minNotice: 90s\n"
        "  leaseRetention: 7d12h\n"
        "  defaultTemplate: {spec: {containers: [{name: main, image: busybox}]}}\n"
    )
    assert [parsed.price_milli(flavor) for flavor in ("H100-80GB", "A100", "V100")] == [3000, 1125, 1000]
    assert (parsed.spare_rate_milli, parsed.min_notice_ms, parsed.max_notice_ms) == (
        500,
        90 * SECOND,
        30 * MINUTE,
    )
    assert parsed.lease_retention_ms == 7 * DAY + 12 * HOUR
    assert parsed.default_template == {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("  spareRat: '1'", "spec.spareRat: is not a known field; did you mean spareRate?"),
        (
            "  spareRate: 0.25",
            (
                "spec.spareRate: 0.25 is not allowed: "
                'must be a decimal in quotes with at most three places, such as "0.25"'
            ),
        ),
        (
            "  spareRate: '1.5'",
            'spec.spareRate: "1.5" is not allowed: must be at most 1, the rate of an active GPU',
        ),
        (
            "  opportunisticRate: '2'",
            'spec.opportunisticRate: "2" is not allowed: must be at most 1, the rate of an active GPU',
        ),
        (
            "  promiseDepth: 0",
            "spec.promiseDepth: 0 is not allowed: must be at least 1",
        ),
        (
            "  promiseDepth: -3",
            "spec.promiseDepth: -3 is not allowed: must be at least 1",
        ),
        ("  sweep: 0s", 'spec.sweep: "0s" is not allowed: must be more than 0'),
        ("  sweep: 5", "spec.sweep: 5 is not allowed: must be a duration such as 30m, 1h30m, 12h or 7d"),
        ("  minNotice: 1h", 'spec.minNotice: "1h" is not allowed: must be at most maxNotice (30m)'),
        (
            "  minNotice: 5",
            "spec.minNotice: 5 is not allowed: must be a duration such as 30m, 1h30m, 12h or 7d",
        ),
        (
            "  prices: {A100: -1}",
            "spec.prices['A100']: -1 is not allowed: must be credits for a GPU-hour, such as 3 or \"2.5\"",
        ),
        (
            "  defaultTemplate: {spec: {terminationGracePeriodSeconds: 600, containers: [{}]}}",
            (
                "spec.defaultTemplate.spec.terminationGracePeriodSeconds: 600 is not allowed: "
                "must be at most the policy's maxGrace (5m)"
            ),
        ),
        ("  defaultTemplate: {}", "spec.defaultTemplate.spec.containers: must name at least one container"),
    ],
)
def test_policy_that_breaks_a_rule_is_refused(text: str, line: str) -> None:
    with pytest.raises(InputError) as refused:
        policy(text)
    assert str(refused.value) == f"f.yaml, document 1, Policy: {line}"


@pytest.mark.parametrize(
    ("document", "line"),
    [
        (
            {"apiVersion": VERSION, "kind": "Policy", "specs": {}},
            "specs: is not a known field; did you mean spec?",
        ),
        ({"apiVersion": "v1", "kind": "Policy"}, f'apiVersion: "v1" is not allowed: must be {VERSION}'),
        ({"apiVersion": VERSION, "kind": "Clock"}, 'kind: "Clock" is not allowed: must be Policy'),
    ],
)
def test_document_of_another_kind_is_refused(document: Doc, line: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_policy(document, "test")
    assert [str(problem) for problem in refused.value.problems] == [line]


def test_clock_document_is_the_one_that_was_parsed() -> None:
    document = {"apiVersion": VERSION, "kind": "Clock", "spec": {"now": "2026-01-05T09:00:00.250Z"}}
    now_ms = parse_clock(document, "test")
    assert now_ms == 1_767_603_600_250
    assert clock_document(now_ms) == document


def test_clock_without_a_valid_time_is_refused() -> None:
    with pytest.raises(InputError, match=r"spec\.now: \"noon\" is not allowed: must be an RFC 3339 time"):
        parse_clock({"apiVersion": VERSION, "kind": "Clock", "spec": {"now": "noon"}}, "test")


def test_is_sim_document_depends_on_the_api_group() -> None:
    assert is_sim_document(clock_document(0))
    assert not is_sim_document(RUN)
    assert not is_sim_document({"apiVersion": 1})


def test_beacon_is_converted_to_integers() -> None:
    parsed = policy('  beacon: {name: drand, period: 30s, genesis: "2026-01-05T09:00:00Z"}')
    assert parsed.beacon == Beacon("drand", 30 * SECOND, 1767603600000)


@pytest.mark.parametrize("url", ["https://example.com/public", "ftp://example.com/{round}", "{round}"])
def test_beacon_with_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(InputError, match=r"spec\.beacon\.url"):
        policy(f'  beacon: {{name: drand, period: 30s, genesis: "2026-01-05T09:00:00Z", url: "{url}"}}')


def test_beacon_without_a_period_is_refused() -> None:
    with pytest.raises(InputError, match=r"spec\.beacon\.period"):
        policy('  beacon: {name: drand, period: 0s, genesis: "2026-01-05T09:00:00Z"}')


def values(text: str) -> dict[tuple[str, int], str]:
    (document,) = read_documents(f"apiVersion: {VERSION}\nkind: BeaconValues\nspec: {text}", "f.yaml")
    return parse_beacon_values(document.body, document.where)


def test_beacon_values_are_read_by_round() -> None:
    assert values('{name: drand, values: {"1": "00ff", "22": "ab"}}') == {
        ("drand", 1): "00ff",
        ("drand", 22): "ab",
    }


@pytest.mark.parametrize(
    "text",
    [
        '{name: drand, values: {"0": "00"}}',
        '{name: drand, values: {"one": "00"}}',
        '{name: drand, values: {"1": "0"}}',
        '{name: drand, values: {"1": ""}}',
        '{name: drand, values: {"1": "FF"}}',
        '{values: {"1": "ff"}}',
    ],
)
def test_invalid_beacon_values_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"spec\.(values|name)"):
        values(text)
