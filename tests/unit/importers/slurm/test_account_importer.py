from typing import Any

import pytest

from jobtree.api.documents.document_stream import Document
from jobtree.api.schema.problems import InputError
from jobtree.importers.conversion import Converted
from jobtree.importers.slurm.account_importer import convert_accounts
from jobtree.importers.slurm.site_mapping import SlurmMap
from jobtree.snapshot.cluster import Cluster

HEADER = (
    "Cluster|Account|User|Partition|Share|Priority|GrpJobs|GrpTRES|GrpSubmit|GrpWall|GrpTRESMins|MaxJobs|MaxTRES|"
    "MaxTRESPerNode|MaxSubmit|MaxWall|MaxTRESMins|QOS|Def QOS|GrpTRESRunMins|ParentName|\n"
)


def row(account: str, parent: str = "root", gpus: str = "", minutes: str = "", **other: str) -> str:
    fields = {"Cluster": "lab", "Account": account, "Share": "1", "GrpTRES": gpus, "GrpTRESMins": minutes}
    fields |= {"ParentName": parent, "QOS": "normal", **other}
    return "|".join(fields.get(name, "") for name in HEADER.rstrip("|\n").split("|")) + "|\n"


def convert(*rows: str, **mapping: Any) -> Converted:  # noqa: ANN401  fields of the mapping
    return convert_accounts("assoc", (HEADER + "".join(rows)).encode(), SlurmMap(**mapping), "H100")


def owners(converted: Converted) -> dict[str, list[dict[str, Any]]]:
    return {budget["spec"]["owner"]: budget["spec"]["envelopes"] for budget in converted.documents}


ROOT = row("root", "")


def test_accounts_become_a_family() -> None:
    by_owner = owners(convert(ROOT, row("physics", gpus="cpu=1000,gres/gpu=64"), row("ml", "physics")))
    assert list(by_owner) == ["root", "root:physics", "root:physics:ml"]
    assert by_owner["root:physics"] == [{"name": "h100", "flavor": "H100", "concurrency": 64}]
    assert by_owner["root:physics:ml"] == []


def test_minutes_become_hours_and_types_become_flavors() -> None:
    rows = (ROOT, row("a", gpus="gres/gpu:a100=16,gres/gpu:h100=8", minutes="gres/gpu:a100=60030"))
    assert owners(convert(*rows, gpus={"a100": "A100-80GB"}))["root:a"] == [
        {"name": "a100-80gb", "flavor": "A100-80GB", "concurrency": 16, "maxGPUHours": 1000},
        {"name": "h100", "flavor": "h100", "concurrency": 8},
    ]


def test_parent_keeps_the_gpus_that_its_children_leave() -> None:
    rows = [row("p", gpus="gres/gpu=64"), row("x", "p", "gres/gpu=16"), row("y", "p", "gres/gpu=32")]
    converted = convert(ROOT, *rows)
    assert owners(converted)["root:p"][0]["concurrency"] == 16
    assert "p itself gets 16 GPUs (64 − 16 − 32)" in "\n".join(map(str, converted.remarks))
    converted = convert(ROOT, rows[0], rows[2], row("z", "p", "gres/gpu=48"))
    assert owners(converted)["root:p"] == []
    assert "may use 16 GPUs more than it (64 − 32 − 48)" in "\n".join(map(str, converted.remarks))


def test_limits_of_grandchildren_count_too() -> None:
    rows = [
        row("p", gpus="gres/gpu=64", minutes="gres/gpu=6000"),
        row("x", "p"),
        row("y", "x", "gres/gpu=16", "gres/gpu=1200"),
    ]
    ((envelope,),) = [
        envelopes for owner, envelopes in owners(convert(ROOT, *rows)).items() if owner == "root:p"
    ]
    assert (envelope["concurrency"], envelope["maxGPUHours"]) == (48, 80)


def test_owner_in_the_mapping_applies_to_the_accounts_below() -> None:
    by_owner = owners(
        convert(ROOT, row("physics"), row("ml", "physics"), accounts={"physics": "org:science"})
    )
    assert list(by_owner) == ["root", "org:science", "org:science:ml"]


def test_users_fair_shares_and_job_limits_get_remarks() -> None:
    rows = (
        row("a", Share="50", MaxTRES="gres/gpu=4", gpus="gres/gpu=8"),
        row("a", User="eva", gpus="gres/gpu=2"),
    )
    said = "\n".join(map(str, convert(ROOT, *rows).remarks))
    for word in ("limits of user eva", "Jobtree has no fair share", "MaxTRES: limits of one job"):
        assert word in said


def test_several_clusters_become_selectors() -> None:
    rows = (row("a", gpus="gres/gpu=8"), row("a", gpus="gres/gpu=4", Cluster="west"))
    assert owners(convert(*rows))["a"] == [
        {"name": "lab-h100", "flavor": "H100", "concurrency": 8, "selector": {"cluster": "lab"}},
        {"name": "west-h100", "flavor": "H100", "concurrency": 4, "selector": {"cluster": "west"}},
    ]


def test_converted_budgets_are_valid_together() -> None:
    rows = (ROOT, row("p", gpus="gres/gpu=64"), row("x", "p", "gres/gpu=16"))
    cluster = Cluster(0)
    cluster.submit(Document("assoc", body) for body in convert(*rows).documents)
    assert cluster.world.budgets.envelopes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("nonsense\n", "has no column Account"),
        (HEADER, "has no accounts"),
        (HEADER + "lab|x\n", "line 2: has 2 columns, but the header has 21"),
        (HEADER + row("a", gpus="gres/gpu=many"), "GrpTRES: 'gres/gpu=many' must be a whole number of GPUs"),
        (HEADER + row("a", "b") + row("b", "a"), "a → b → a is a cycle"),
        (HEADER + row("a", "a"), "a → a is a cycle"),
        (HEADER + row(""), "Account: is empty"),
    ],
)
def test_mistake_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        convert_accounts("assoc", text.encode(), SlurmMap(), "H100")


def test_gpus_without_a_type_need_a_flavor() -> None:
    with pytest.raises(InputError, match="gres/gpu has no type"):
        convert_accounts("assoc", (HEADER + row("a", gpus="gres/gpu=1")).encode(), SlurmMap(), None)
