from typing import Any

import pytest

from jobtree.manager.webhook.admission_handlers import spares_patch

Spec = dict[str, Any]


def patched(spec: Spec, before: Spec | None = None) -> list[str]:
    return [
        f"{operation['op']} {operation['path']} {operation.get('value', '')}".strip()
        for operation in spares_patch(spec, before or {})
    ]


REPLACED = ["add /spec/spares 2", "remove /spec/sparesPerGroup"]


@pytest.mark.parametrize(
    ("spec", "before", "patch"),
    [
        ({"spares": 1}, {}, []),
        ({"sparesPerGroup": 2}, {}, REPLACED),
        ({"sparesPerGroup": 2, "spares": 2}, {}, REPLACED),
        ({"sparesPerGroup": 2, "spares": 1}, {}, []),
        ({"sparesPerGroup": 2, "spares": 1}, {"spares": 1}, REPLACED),
        ({"sparesPerGroup": 2, "spares": 3}, {"spares": 1}, []),
        ({"stages": "none"}, {}, []),
        (
            {"stages": [7, {"name": [1], "sparesPerGroup": 2}]},
            {},
            [operation.replace("/spec/", "/spec/stages/1/") for operation in REPLACED],
        ),
    ],
    ids=["new", "old", "both-alike", "both", "applied-again", "edited-twice", "misshapen", "odd-stages"],
)
def test_old_spelling_of_spares_is_replaced_unless_both_differ(
    spec: Spec, before: Spec, patch: list[str]
) -> None:
    assert patched(spec, before) == patch


def test_stages_are_compared_by_name() -> None:
    spec = {
        "stages": [
            {"name": "a", "sparesPerGroup": 1},
            {"name": "b", "stages": [{"name": "c", "sparesPerGroup": 2, "spares": 5}]},
        ]
    }
    before = {"stages": [{"name": "b", "stages": [{"name": "c", "spares": 5}]}]}
    assert patched(spec, before) == [
        "add /spec/stages/0/spares 1",
        "remove /spec/stages/0/sparesPerGroup",
        "add /spec/stages/1/stages/0/spares 2",
        "remove /spec/stages/1/stages/0/sparesPerGroup",
    ]
