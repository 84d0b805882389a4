"""The reference says all that the code has, and nothing that it has not."""

from typing import get_args

import pytest
from msgspec import structs

from jobtree.api.kinds.crd import DEFINITIONS
from jobtree.api.kinds.lease import ClosureReason
from jobtree.cli.shell.root_command import SUMMARIES
from jobtree.core.model.outcomes import EVENTS
from jobtree.core.model.reasons import Reason
from jobtree.manager.metrics import Metrics
from pages import api, verbs, words
from pages.hooks import REFERENCE
from pages.tables import field_sentences, table


def test_every_field_has_a_sentence_and_a_row() -> None:
    page = api.page()
    for kind in api.described():
        for field in structs.fields(kind):
            assert f"| `{field.encode_name}` | " in page
            assert api.sentence(kind, field.encode_name) in page


def test_no_sentence_is_about_a_field_that_is_gone() -> None:
    declared = {
        base: {one.encode_name for one in structs.fields(base)}
        for kind in api.described()
        for base in kind.__mro__[:-3]
    }
    known = {base.__name__: names for base, names in declared.items()}
    stale = [
        f"{struct}.{field}"
        for struct, fields in field_sentences().items()
        for field in fields
        if field not in known.get(struct, ())
    ]
    assert stale == []


def test_a_field_without_a_sentence_is_named() -> None:
    with pytest.raises(KeyError, match=r"pages/sentences.yaml says nothing of BudgetSpec\.colour"):
        api.sentence(structs.fields(DEFINITIONS[0].kind)[1].type, "colour")


def test_types_defaults_and_rules_are_those_of_the_structs() -> None:
    lines = api.page().splitlines()
    assert any(line.startswith("| `concurrency` | integer, 1 to 1,000,000 | *required* |") for line in lines)
    assert any(line.startswith("| `sharing` | `family` · `none` | `family` |") for line in lines)
    assert any(line.startswith("| `sponsors` | list of [Owner](#owner) |") for line in lines)
    assert any(line.startswith("| `allowCrossGroupSpread` | boolean | `true` |") for line in lines)
    assert "- maxGPUHours must be at most concurrency × window" in lines


def test_every_event_of_the_code_is_there() -> None:
    page = words.events_page()
    assert [name for name in EVENTS if f"| `{name}` |" not in page] == []
    assert "| `RandomPreempt` | Warning |" in page


def test_every_reason_is_there() -> None:
    page = words.reasons_page()
    assert [reason for reason in Reason if f"| `{reason}` |" not in page] == []
    assert [reason for reason in get_args(ClosureReason) if f"| `{reason}` |" not in page] == []


def test_every_verb_and_every_exit_code_is_there() -> None:
    page = verbs.page()
    assert [verb for verb in SUMMARIES if f"\n## {verb}\n" not in page] == []
    assert "\n## import slurm\n" in page
    assert page.count("Options of every verb:") == 1
    assert "| `74` |" in page


@pytest.mark.parametrize("name", REFERENCE)
def test_a_page_comes_out_the_same_again(name: str) -> None:
    assert REFERENCE[name]() == REFERENCE[name]()


def test_a_bar_does_not_end_a_cell() -> None:
    assert table(("a",), [("x|y",)]) == ["| a |", "| --- |", r"| x\|y |"]


def test_every_metric_that_is_served_is_described() -> None:
    served = {line.split()[2] for line in Metrics().page().decode().splitlines() if line.startswith("# TYPE")}
    page = words.metrics_page()
    assert served
    assert [name for name in served if f"`{name}`" not in page and f"`{name}_total`" not in page] == []
