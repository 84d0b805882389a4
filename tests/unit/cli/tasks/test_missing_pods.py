"""The audit finds ranks without a pod, and leases without theirs."""

from types import SimpleNamespace
from typing import Any

from jobtree.api.schema.quantities import HOUR
from jobtree.cli.tasks.audit_findings import mismatches
from jobtree.cli.tasks.missing_pods import missing_pods
from jobtree.kube.installation import ATTEMPT_LABEL, RANK_LABEL
from tests.unit.core.build import budget, envelope, nodes, run
from tests.unit.core.lab import Lab

Body = dict[str, Any]


def lab_with_gang() -> Lab:
    lab = Lab(*nodes("nv-a", 4), budget("org", envelope(64)))
    lab.submit(run("r", "org", 16, per_pod=8, spares=1))
    lab.advance(HOUR)
    return lab


def pods_of(lab: Lab, *, attempt: int = 1) -> list[Body]:
    """Returns the pods that the Run must have, ranks first."""
    state = lab["r"]
    ranks = [
        pod(state.uid, node, {RANK_LABEL: str(rank), ATTEMPT_LABEL: str(attempt)})
        for rank, (node, _) in enumerate(state.rank_slots.values())
    ]
    spares = [lease.slots[0][0] for lease in lab.leases("r") if lease.role == "Spare"]
    return [*ranks, *(pod(state.uid, node, {}) for node in spares)]


def pod(uid: str, node: str, labels: dict[str, str]) -> Body:
    owner = {"kind": "Run", "uid": uid}
    limits = {"limits": {"nvidia.com/gpu": "8"}}
    return {
        "metadata": {"labels": labels, "ownerReferences": [owner]},
        "spec": {"nodeName": node, "containers": [{"resources": limits}]},
    }


def found(lab: Lab, pods: list[Body]) -> list[str]:
    objects = SimpleNamespace(of=lambda _: [(("Pod", "", ""), body) for body in pods])
    cluster: Any = SimpleNamespace(world=lab.world, objects=objects)
    return [message for _, message in (*mismatches(cluster), *missing_pods(cluster))]


def test_all_pods_match_the_leases() -> None:
    lab = lab_with_gang()
    assert found(lab, pods_of(lab)) == []


def test_each_missing_rank_is_found() -> None:
    lab = lab_with_gang()
    rank_0, _, spare = pods_of(lab)
    node, _ = list(lab["r"].rank_slots.values())[1]
    assert found(lab, [rank_0, spare]) == [f"ranks of ns/r have no pod: 1 ({node}#0-7)"]
    assert len(found(lab, [])) == 2


def test_pods_of_an_earlier_attempt_are_no_ranks() -> None:
    lab = lab_with_gang()
    (message,) = found(lab, pods_of(lab, attempt=7))
    assert message.startswith("ranks of ns/r have no pod: 0 (")


def test_spare_lease_without_its_standby_pod_is_found() -> None:
    lab = lab_with_gang()
    *ranks, spare = pods_of(lab)
    assert found(lab, ranks) == [f"ns/r lacks 1 of its standby pods on {spare['spec']['nodeName']}"]


def test_ranks_that_wait_for_stopping_pods_and_new_runs_are_left_out() -> None:
    lab = lab_with_gang()
    rank_0, rank_1, spare = pods_of(lab)
    rank_1["metadata"]["deletionTimestamp"] = "2026-01-05T10:00:00Z"
    assert found(lab, [rank_0, rank_1, spare]) == []
    lab.submit(run("new", "org", 8))
    assert found(lab, [rank_0, rank_1, spare]) == []


def test_rank_that_has_succeeded_is_not_missing() -> None:
    lab = lab_with_gang()
    rank_0, rank_1, spare = pods_of(lab)
    objects = SimpleNamespace(of=lambda _: [(("Pod", "", ""), body) for body in (rank_0, spare)])
    cluster: Any = SimpleNamespace(world=lab.world, objects=objects)
    assert list(missing_pods(cluster, [rank_1])) == []
