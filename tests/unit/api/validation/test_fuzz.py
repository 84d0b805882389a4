"""Every document is either accepted or refused with an InputError; no other exception is raised."""

import copy
from typing import Any

from hypothesis import example, given, strategies as st

from jobtree.api.documents.document_stream import dump_yaml, read_documents
from jobtree.api.kinds.policy import parse_clock, parse_policy
from jobtree.api.kubernetes.node import read_node
from jobtree.api.kubernetes.pod import read_pod
from jobtree.api.schema.problems import InputError
from jobtree.api.validation.object_parser import parse_object, to_document
from jobtree.api.validation.update_rules import validate_update
from tests.unit.api.kubernetes.test_node import NODE
from tests.unit.api.samples import SAMPLES

SIM = "sim.rq.davidlangworthy.io/v1"
CONTAINER = {"resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}, "restartPolicy": "Always"}
POD = {
    "metadata": {
        "name": "p",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Run", "name": "r", "uid": "u"}],
    },
    "spec": {"containers": [CONTAINER], "initContainers": [CONTAINER], "tolerations": [{"key": "a"}]},
    "status": {"phase": "Running"},
}
POLICY = {
    "apiVersion": SIM,
    "kind": "Policy",
    "spec": {"prices": {"a": 1}, "spareRate": "1", "minNotice": "1s", "defaultTemplate": POD},
}
CLOCK = {"apiVersion": SIM, "kind": "Clock", "spec": {"now": "2026-01-05T09:00:00Z"}}

numbers = [-1, 0, 1, 10**40, 0.5]
words = ["", "x", "8", "0s", "*", "a:b", "1e999", "\n", "\x00", "\u0663", "🙂" * 100]
near_misses = ["2026-02-30T00:00:00Z", "a#9-0", "99999d99999h"]
containers: list[object] = [[], {}, [None], [1], {"": 0}, {"a": {"b": []}}]
odd: st.SearchStrategy[Any] = st.sampled_from([None, True, *numbers, *words, *near_misses, *containers])
anything = st.recursive(
    odd, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
)


@st.composite
def damaged(draw: st.DrawFn, samples: list[dict[str, Any]]) -> dict[str, Any]:
    """A valid document in which a few values were replaced, removed or added."""
    document: dict[str, Any] = copy.deepcopy(draw(st.sampled_from(samples)))
    for _ in range(draw(st.integers(1, 3))):
        target: Any = document
        while True:
            keys = list(target) if isinstance(target, dict) else list(range(len(target)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(target[key], (dict, list)) and target[key] and draw(st.integers(0, 3)):
                target = target[key]
                continue
            _damage(draw, target, key)
            break
    return document


def _damage(draw: st.DrawFn, target: Any, key: Any) -> None:  # noqa: ANN401
    wrong = copy.deepcopy(draw(anything))
    match draw(st.sampled_from(["replace", "remove", "add"])):
        case "replace":
            target[key] = wrong
        case "remove":
            del target[key]
        case "add" if isinstance(target, dict):
            target[draw(st.sampled_from(["x", "spec", "stages", "quota", "template", "with"]))] = wrong
        case _:
            target.append(copy.deepcopy(target[key]))


@given(damaged(SAMPLES), damaged(SAMPLES))
def test_damaged_object_is_accepted_or_refused(first: dict[str, Any], second: dict[str, Any]) -> None:
    accepted = []
    for document in (first, second):
        try:
            accepted.append(parse_object(document, "fuzz"))
        except InputError:
            continue
    for parsed in accepted:
        assert parse_object(to_document(parsed), "fuzz") == parsed
        for other in accepted:
            assert all(str(problem) for problem in validate_update(parsed, other))


@given(damaged([NODE]), damaged([POD]), damaged([POLICY]), damaged([CLOCK]))
def test_damaged_document_of_a_state_file_is_accepted_or_refused(
    node: dict[str, Any], pod: dict[str, Any], policy: dict[str, Any], clock: dict[str, Any]
) -> None:
    for read, document in ((read_node, node), (read_pod, pod), (parse_policy, policy), (parse_clock, clock)):
        try:
            read(document, "fuzz")
        except InputError:
            continue


@given(st.text() | st.binary() | st.text(alphabet="{}[]:,-&*!|>'\"\n\t #?%@`ab0~<"))
@example("!!timestamp 2026-01-05")
@example("a: !<!> b")
@example("%YAML 9.9\n---\na: b")
@example("? a\n: b\n? c")
@example('{"a": 1}}')
def test_random_text_is_accepted_or_refused(text: str | bytes) -> None:
    try:
        documents = read_documents(text, "fuzz")
    except InputError:
        return
    reread = read_documents(dump_yaml([document.body for document in documents]), "fuzz")
    assert [document.body for document in reread] == [document.body for document in documents]
