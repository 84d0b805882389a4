"""Events as they are written."""

import re

import msgspec
import pytest

from jobtree.manager.herald import event_document
from jobtree.manager.steps import Note
from tests.unit.core.build import T0, run

SUBDOMAIN = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
)  # as Kubernetes has it


@pytest.mark.parametrize(
    "name", ["r", "a.b", f"{'a' * 199}.b", f"{'a' * 199}-b", f"{'a' * 197}.-.b", "n" * 240]
)
def test_the_name_of_an_event_is_one_that_kubernetes_takes(name: str) -> None:
    asked = run("r", "org", 8)
    named = msgspec.structs.replace(asked, metadata=msgspec.structs.replace(asked.metadata, name=name))
    document = event_document(Note(named, "Admitted", "it starts", T0))
    made = document["metadata"]
    assert isinstance(made, dict)
    assert SUBDOMAIN.fullmatch(made["name"])
    assert len(made["name"]) <= 253
