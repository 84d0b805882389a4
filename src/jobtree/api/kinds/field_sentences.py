"""The meaning of each field in a sentence: for ``kubectl explain``, JSON schemas and the API reference."""

from functools import cache
from importlib.resources import files

import msgspec

from jobtree.api.documents.yaml_reader import read_yaml

SENTENCES = "sentences.yaml"
MAX_DEPTH = 4


@cache
def field_sentences() -> dict[str, dict[str, str]]:
    """Returns the meaning of each field, by struct."""
    text = files(__package__).joinpath(SENTENCES).read_text(encoding="utf-8")
    ((_, document),) = read_yaml(text, SENTENCES, MAX_DEPTH)
    return msgspec.convert(document, dict[str, dict[str, dict[str, str]]])["fields"]


def sentence(kind: type[msgspec.Struct], field: str) -> str:
    """Returns the meaning of a field; that of an inherited field belongs to the struct that declares it."""
    for base in kind.__mro__:
        meaning = field_sentences().get(base.__name__, {}).get(field)
        if meaning is not None:
            return meaning
    raise KeyError(f"{SENTENCES} has no sentence for {kind.__name__}.{field}: add one")
