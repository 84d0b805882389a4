import subprocess
import sys

import pytest
import yaml

from jobtree.api.documents import yaml_reader
from jobtree.api.documents.document_stream import InputError, read_documents


def bodies(text: str | bytes) -> list[object]:
    return [document.body for document in read_documents(text, "f.yaml")]


def value(text: str) -> object:
    """Returns the value of a scalar in a YAML document."""
    (body,) = read_documents(f"a: {text}", "f.yaml")
    return body.body["a"]


@pytest.fixture(params=["libyaml", "pure Python"], autouse=True)
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs every test with libyaml and without it."""
    if request.param == "pure Python":
        monkeypatch.setattr(yaml_reader, "_LOADER", yaml.SafeLoader)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("true", True),
        ("False", False),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("Y", "Y"),
        ("", None),
        ("~", None),
        ("null", None),
        ('"null"', "null"),
        ("8", 8),
        ("-3", -3),
        ("0", 0),
        ("0x1F", 31),
        ("0o17", 15),
        ("010", "010"),
        ("1_000", "1_000"),
        ("12:30:00", "12:30:00"),
        ("0.25", 0.25),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("1.", 1.0),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("'-'", "-"),
        ("2026-01-05", "2026-01-05"),
        ("2026-01-05T09:00:00Z", "2026-01-05T09:00:00Z"),
        ("org:ai:rai", "org:ai:rai"),
        ("gpu-a-01#0-7", "gpu-a-01#0-7"),
        ("!!str 8", "8"),
        ("! 8", "8"),
        ("!!int '8'", 8),
        ("!!float 8", 8.0),
        ("!!map {}", {}),
        ("!!seq []", []),
    ],
)
def test_scalar_has_the_type_of_its_text(text: str, meaning: object) -> None:
    result = value(text)
    assert result == meaning
    assert type(result) is type(meaning)


def test_every_key_is_a_string() -> None:
    assert bodies("1: a\ntrue: b\n~: c\n2026-01-05: d") == [
        {"1": "a", "true": "b", "~": "c", "2026-01-05": "d"}
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("---\n---\n", []),
        ("# nothing\n", []),
        ("a: 1\n---\n\n---\nb: 2\n", [{"a": 1}, {"b": 2}]),
        ("{}\n---\na: 1", [{"a": 1}]),
        ("{apiVersion: v1, kind: Clock}", [{"apiVersion": "v1", "kind": "Clock"}]),
        ("kind: List\nitems:\n- a: 1\n- b: 2", [{"a": 1}, {"b": 2}]),
        ("kind: List\nitems: null", []),
        ("kind: List", []),
        ("kind: List\nitems:\n- kind: List\n  items: [{a: 1}]", [{"a": 1}]),
        ("a: &x {b: 1}\nc: *x", [{"a": {"b": 1}, "c": {"b": 1}}]),
        ("a: &x 5\nc: [*x, *x]", [{"a": 5, "c": [5, 5]}]),
        ("\ufeffa: 1", [{"a": 1}]),
        ('{"a": 1}', [{"a": 1}]),
        ('{"a": 1}\n{"b": 2} {"c": 3}', [{"a": 1}, {"b": 2}, {"c": 3}]),
        ('{"kind": "List", "items": [{"a": 1}]}', [{"a": 1}]),
        ('{"a": "\\ud83d\\ude00"}', [{"a": "😀"}]),
    ],
)
def test_stream_has_all_its_documents(text: str, expected: list[object]) -> None:
    assert bodies(text) == expected
    assert bodies(text.encode()) == expected


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\nb: 2\na: 3", "f.yaml, document 1, line 3: the key 'a' occurs twice in one mapping"),
        (
            "a: 1\n---\nb:\n  c: 1\n  c: 2",
            "f.yaml, document 2, line 5: the key 'c' occurs twice in one mapping",
        ),
        ('{"a": 1, "a": 2}', "f.yaml, document 1: the key 'a' occurs twice in one mapping"),
        ('{"b": 1} {"a": {"c": 1, "c": 2}}', "f.yaml, document 2: the key 'c' occurs twice in one mapping"),
        (
            "a: 1\n<<: {b: 2}",
            "f.yaml, document 1, line 2: merge keys (<<) are not supported: write the fields out",
        ),
        (
            "a: !!binary aGk=",
            "f.yaml, document 1, line 1: 'aGk=' is not a value of the tag 'tag:yaml.org,2002:binary'",
        ),
        ("a: !!set {b}", "f.yaml, document 1, line 1: the tag 'tag:yaml.org,2002:set' is not supported"),
        (
            "a: !!int eight",
            "f.yaml, document 1, line 1: 'eight' is not a value of the tag 'tag:yaml.org,2002:int'",
        ),
        ("? [a]\n: b", "f.yaml, document 1, line 1: a key must be a string"),
        ("? {a: b}\n: b", "f.yaml, document 1, line 1: a key must be a string"),
        ("a: *b", "f.yaml, document 1, line 1: the alias *b has no anchor"),
        ("a: &a [1, *a]", "f.yaml, document 1, line 1: the alias *a would contain itself"),
        ("a: 1e999", "f.yaml, document 1, line 1: 1e999 is too large a number"),
        ('{"a": 1e999}', "f.yaml, document 1: 1e999 is too large a number"),
        ('{"a": NaN}', "f.yaml, document 1: NaN is not a number"),
        ("- a", 'f.yaml, document 1: must be a mapping with apiVersion and kind, not ["a"]'),
        ("a: 1\n---\nhello", 'f.yaml, document 2: must be a mapping with apiVersion and kind, not "hello"'),
        ("kind: List\nitems: {a: 1}", 'f.yaml, document 1: items: must be a list, not {"a": 1}'),
        (
            "kind: List\nitems: [{a: 1}, 2]",
            "f.yaml, document 1, item 1: must be a mapping with apiVersion and kind, not 2",
        ),
        ("a: " + "[" * 100_000, "f.yaml, document 1, line 1: is nested more than 100 levels deep"),
        (
            '{"a":' + "[" * 100_000 + "]" * 100_000 + "}",
            "f.yaml, document 1: is nested more than 100 levels deep",
        ),
        ('{"a":' + "[" * 100 + "]" * 100 + "}", "f.yaml, document 1: is nested more than 100 levels deep"),
    ],
    ids=lambda text: text[:40],
)
def test_unsupported_document_is_refused_with_its_line(text: str, line: str) -> None:
    with pytest.raises(InputError) as refused:
        read_documents(text, "f.yaml")
    assert str(refused.value) == line


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ("a: 1\nb: [", "f.yaml, document 1, line "),
        ("a: 1\n---\nb: 'x", "f.yaml, document 2, line "),
        ("a: b: c", "f.yaml, document 1, line 1: is not YAML: mapping values are not allowed"),
        ("a: 1\n\tb: 2", "f.yaml, document 1, line 2: is not YAML: found "),
        ("a: \x01", "f.yaml, document 1: is not YAML: "),
        ('{"a": "\\ud800"}', "f.yaml, document 1: "),
        ("a: \ud800", "f.yaml, document 1: is not "),
        ('{"a": ', "f.yaml, document 1, line "),
    ],
)
def test_invalid_document_is_refused_with_its_place(text: str, begins: str) -> None:
    with pytest.raises(InputError) as refused:
        read_documents(text, "f.yaml")
    assert str(refused.value).startswith(begins)


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(InputError) as refused:
        read_documents(b"a: \xff", "f.yaml")
    assert str(refused.value) == "f.yaml: is not UTF-8: byte 3 is 0xff"


def test_aliases_that_expand_to_a_billion_values_are_refused_at_once() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(InputError) as refused:
        read_documents("\n".join(lines), "f.yaml")
    assert str(refused.value) == "f.yaml, document 1, line 6: aliases expand to more than 1000000 values"


def test_document_has_its_place_in_the_stream() -> None:
    text = "a: 1\n---\nkind: List\nitems: [{b: 1}, {c: 1}]"
    assert [document.where for document in read_documents(text, "f.yaml")] == [
        "f.yaml, document 1",
        "f.yaml, document 2, item 0",
        "f.yaml, document 2, item 1",
    ]


def test_json_is_read_without_loading_yaml() -> None:
    program = (
        "import sys; from jobtree.api.documents.document_stream import read_documents; "
        "read_documents('{\"a\": 1}', 'f'); sys.exit('yaml' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
