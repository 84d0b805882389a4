import pytest
import yaml
from hypothesis import given, strategies as st

from jobtree.api.documents.document_stream import dump_yaml, read_documents

WORDS = [
    "true",
    "yes",
    "No",
    "on",
    "y",
    "null",
    "~",
    "",
    "8",
    "0x1f",
    "010",
    "1e3",
    "1_000",
    "12:30:00",
    ".inf",
]
STRINGS = [
    *WORDS,
    "2026-01-05T09:00:00Z",
    "2026-01-05",
    "0.25",
    "1234e5678",
    "a: b",
    "a #b",
    "a:",
    "- a",
    "*a",
    "<<",
]
LINES = [
    "a\nb\n",
    "a\nb",
    "a\n\n  b\n",
    "\na",
    " a\nb",
    "a\n\n",
    "a \nb",
    "# a\nb",
    "a\tb\nc",
    "a\r\nb",
    "a\x85b\nc",
]

scalars = (
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text() | st.sampled_from(STRINGS + LINES)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
)
documents = st.lists(st.dictionaries(st.text(max_size=20), values, min_size=1, max_size=5), max_size=3)


def test_document_is_written_in_block_style_and_order() -> None:
    document = {
        "kind": "Lease",
        "spec": {"slots": ["gpu-a-01#0-7", "b#1"], "start": "2026-01-05T09:00:00Z", "rate": "1", "group": 0},
        "list": [{"a": 1, "b": {"c": True}}, [1, [2]], [], {}],
        "empty": {},
        "nothing": None,
        "script": "set -e\ntrain --fast\n",
        "note": 'say "hi": now',
    }
    assert dump_yaml([document, {"a": 1}]) == (
        "kind: Lease\n"
        "spec:\n"
        "  slots:\n"
        "  - gpu-a-01#0-7\n"
        "  - b#1\n"
        '  start: "2026-01-05T09:00:00Z"\n'
        '  rate: "1"\n'
        "  group: 0\n"
        "list:\n"
        "- a: 1\n"
        "  b:\n"
        "    c: true\n"
        "-\n"
        "  - 1\n"
        "  -\n"
        "    - 2\n"
        "- []\n"
        "- {}\n"
        "empty: {}\n"
        "nothing: null\n"
        "script: |\n"
        "  set -e\n"
        "  train --fast\n"
        'note: "say \\"hi\\": now"\n'
        "---\n"
        "a: 1\n"
    )


@pytest.mark.parametrize("text", STRINGS + LINES)
def test_string_is_read_as_a_string_by_every_reader(text: str) -> None:
    written = dump_yaml([{"a": text, text or "k": [text]}])
    assert read_documents(written, "f")[0].body["a"] == text
    assert yaml.safe_load(written) == {"a": text, text or "k": [text]}


@given(documents)
def test_written_documents_are_read_back_by_jobtree_and_by_pyyaml(written: list[dict[str, object]]) -> None:
    text = dump_yaml(written)
    expected = [document for document in written if document.get("kind") != "List"]
    read = [document.body for document in read_documents(text, "f")]
    assert [body for body in read if body.get("kind") != "List"] == expected
    assert list(yaml.safe_load_all(text)) == written
