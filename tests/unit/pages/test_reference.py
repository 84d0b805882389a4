"""The reference pages describe everything that the code has, and nothing else."""

from typing import get_args

import pytest
from msgspec import structs

from jobtree.api.kinds.crd import DEFINITIONS
from jobtree.api.kinds.field_sentences import field_sentences, sentence
from jobtree.api.kinds.lease import ClosureReason
from jobtree.cli.shell.root_command import SUMMARIES
from jobtree.core.model.outcomes import EVENTS
from jobtree.core.model.reasons import Reason
from jobtree.manager.metrics import Metrics
from pages import api, verbs, words
from pages.hooks import REFERENCE
from pages.tables import table


def test_page_has_a_row_for_every_field() -> None:
    page = api.page()
    for kind in api.described_structs():
        for field in structs.fields(kind):
            assert f"| `{field.encode_name}` | " in page
            assert sentence(kind, field.encode_name) in page


def test_every_sentence_belongs_to_a_field() -> None:
    declared = {
        base: {field.encode_name for field in structs.fields(base)}
        for kind in api.described_structs()
        for base in kind.__mro__[:-3]
    }
    fields_by_name = {base.__name__: names for base, names in declared.items()}
    stale = [
        f"{struct}.{field}"
        for struct, fields in field_sentences().items()
        for field in fields
        if field not in fields_by_name.get(struct, ())
    ]
    assert stale == []


def test_field_without_a_sentence_raises() -> None:
    with pytest.raises(KeyError, match=r"sentences.yaml has no sentence for BudgetSpec\.colour"):
        sentence(structs.fields(DEFINITIONS[0].kind)[1].type, "colour")


def test_page_has_types_defaults_and_rules() -> None:
    lines = api.page().splitlines()
    assert any(line.startswith("| `concurrency` | integer, 1 to 1,000,000 | *required* |") for line in lines)
    assert any(line.startswith("| `sharing` | `family` · `none` | `family` |") for line in lines)
    assert any(line.startswith("| `sponsors` | list of [Owner](#owner) |") for line in lines)
    assert any(line.startswith("| `allowCrossGroupSpread` | boolean | `true` |") for line in lines)
    assert "- maxGPUHours must be at most concurrency × window" in lines


def test_page_has_every_event() -> None:
    page = words.events_page()
    assert [name for name in EVENTS if f"| `{name}` |" not in page] == []
    assert "| `RandomPreempt` | Warning |" in page


def test_page_has_every_reason() -> None:
    page = words.reasons_page()
    assert [reason for reason in Reason if f"| `{reason}` |" not in page] == []
    assert [reason for reason in get_args(ClosureReason) if f"| `{reason}` |" not in page] == []


def test_page_has_every_verb_and_exit_code() -> None:
    page = verbs.page()
    assert [verb for verb in SUMMARIES if f"\n## {verb}\n" not in page] == []
    assert "\n## import slurm\n" in page
    assert page.count("Options of every verb:") == 1
    assert "| `74` |" in page


@pytest.mark.parametrize("name", REFERENCE)
def test_page_is_the_same_when_it_is_written_again(name: str) -> None:
    assert REFERENCE[name]() == REFERENCE[name]()


def test_bar_in_a_cell_is_escaped() -> None:
    assert table(("a",), [("x|y",)]) == ["| a |", "| --- |", r"| x\|y |"]


def test_page_has_every_metric() -> None:
    served = {line.split()[2] for line in Metrics().page().decode().splitlines() if line.startswith("# TYPE")}
    page = words.metrics_page()
    assert served
    assert [name for name in served if f"`{name}`" not in page and f"`{name}_total`" not in page] == []
