"""The outcomes of Runs and ranks follow from pods, and so do the used GPUs of a node."""

import msgspec
import pytest

from jobtree.api.kubernetes.pod import Pod
from jobtree.kube.watch.object_decoder import LivePod
from jobtree.kube.watch.object_store import Change, StoredObject
from jobtree.manager.controllers.observed_pods import ObservedPods
from jobtree.manager.decisions.pod_outcomes import RankLost, RunSucceeded, SpareLost
from jobtree.manager.decisions.write_set import DesiredPods
from jobtree.manager.pods.pod_set import PodPlacement, PodSet
from tests.unit.core.build import run

RUN = run("r", "org", 16)
UID = RUN.metadata.uid
POD_SET = PodSet(1, 8, (PodPlacement("0-0-1", "n1", 8, 0, 0, 0), PodPlacement("0-1-1", "n2", 8, 0, 1, 1)))
DESIRED = DesiredPods(RUN, POD_SET)
RUN_KEY = (RUN.metadata.namespace, RUN.metadata.name)
NAMES = [f"r-{UID[:8]}-0-0-1", f"r-{UID[:8]}-0-1-1"]


def stored_pod(
    rank: int,
    phase: str = "Running",
    *,
    node: str = "",
    reason: str = "",
    deleted: str | None = None,
    namespace: str = "ns",
) -> StoredObject[LivePod]:
    where = node or f"n{rank + 1}"
    pod = Pod(
        namespace=namespace,
        name=NAMES[rank],
        uid=f"pod-{rank}-{namespace}",
        node=where,
        gpus=8,
        cpu_milli=0,
        memory_bytes=0,
        run_uid=UID,
        finished=phase in ("Succeeded", "Failed"),
    )
    return StoredObject(pod.uid, pod.name, namespace, "1", LivePod(pod, {}, phase, reason, deleted, ""))


def additions(*pods: StoredObject[LivePod]) -> list[Change[LivePod]]:
    return [Change(None, pod) for pod in pods]


def outcomes(
    roster: ObservedPods, ended_by_us: set[str] | None = None
) -> list[tuple[bool, tuple[int, int]] | str]:
    seen: list[tuple[bool, tuple[int, int]] | str] = []
    for outcome in roster.outcomes(UID, DESIRED, 5, ended_by_us or set()):
        if isinstance(outcome, RankLost):
            seen.append((outcome.failed, outcome.group_rank))
        elif isinstance(outcome, RunSucceeded):
            seen.append("done")
    return seen


def test_success_of_all_ranks_is_reported_once() -> None:
    roster = ObservedPods()
    roster.handle_changes(additions(stored_pod(0, "Succeeded"), stored_pod(1)))
    assert outcomes(roster) == []
    roster.handle_changes(additions(stored_pod(1, "Succeeded")))
    assert outcomes(roster) == ["done"]
    assert outcomes(roster) == []
    roster.clear_reported(UID)
    assert outcomes(roster) == ["done"]


@pytest.mark.parametrize(
    ("reason", "counts"),
    [
        ("", True),
        ("Error", True),
        ("Evicted", False),
        ("OutOfnvidia.com/gpu", False),
        ("NodeShutdown", False),
    ],
)
def test_failed_rank_counts_unless_somebody_else_ended_its_pod(reason: str, counts: bool) -> None:
    roster = ObservedPods()
    roster.handle_changes(additions(stored_pod(0), stored_pod(1, "Failed", reason=reason)))
    assert outcomes(roster) == [(counts, (0, 1))]


def test_deleted_pod_is_a_lost_rank_if_it_was_seen() -> None:
    roster = ObservedPods()
    roster.handle_changes(additions(stored_pod(0)))
    assert outcomes(roster) == [], "the other pod was not created yet"
    roster.handle_changes([Change(stored_pod(0), None)])
    assert outcomes(roster) == [(False, (0, 0))]


def test_pod_deleted_by_others_is_a_lost_rank() -> None:
    roster = ObservedPods()
    roster.handle_changes(additions(stored_pod(0, deleted="2026-01-05T09:00:00Z"), stored_pod(1)))
    assert outcomes(roster, {"pod-0-ns"}) == []
    assert outcomes(roster) == [(False, (0, 0))]


def test_moved_rank_is_not_lost_with_its_old_pod() -> None:
    roster = ObservedPods()
    roster.handle_changes(additions(stored_pod(0), stored_pod(1, node="elsewhere")))
    assert outcomes(roster) == []


def test_pod_of_another_namespace_is_no_rank_of_the_run() -> None:
    roster = ObservedPods()
    roster.handle_changes(additions(stored_pod(0), stored_pod(1)))
    roster.handle_changes(
        additions(stored_pod(0, "Failed", namespace="eve"), stored_pod(1, "Succeeded", namespace="eve"))
    )
    assert outcomes(roster) == []
    roster.handle_changes([Change(stored_pod(0, namespace="eve"), None)])
    assert (outcomes(roster), sorted(roster.pods_of(RUN))) == ([], NAMES)


def test_used_gpus_of_a_node_are_those_of_live_and_requested_pods() -> None:
    roster = ObservedPods()
    roster.handle_changes(additions(stored_pod(0)))
    roster.expect_pod(("ns", NAMES[1]), "n2", 8)
    assert (roster.used("n1"), roster.used("n2"), roster.used("n3")) == (8, 8, 0)
    roster.handle_changes(additions(stored_pod(1)))
    assert roster.used("n2") == 8
    roster.handle_changes([Change(stored_pod(0), stored_pod(0, "Succeeded")), Change(stored_pod(1), None)])
    assert (roster.used("n1"), roster.used("n2")) == (0, 0)


def test_standby_pod_evicted_by_others_is_reported() -> None:
    standby = PodPlacement("spare-2-0", "n3", 8, 0)
    spared = DesiredPods(RUN, PodSet(1, 8, (*POD_SET.placements, standby)))
    name = f"r-{UID[:8]}-spare-2-0"

    def pod(phase: str = "Running", deleted: str | None = None) -> StoredObject[LivePod]:
        base = stored_pod(0, phase, deleted=deleted)
        value = msgspec.structs.replace(base.value.pod, name=name, uid="standby", node="n3")
        return StoredObject("standby", name, "ns", "1", msgspec.structs.replace(base.value, pod=value))

    def results(*ended_by_us: str) -> list[object]:
        return list(roster.outcomes(UID, spared, 5, set(ended_by_us)))

    roster = ObservedPods()
    roster.handle_changes(additions(stored_pod(0), stored_pod(1), pod()))
    assert results() == []
    roster.handle_changes(additions(pod(deleted="2026-01-05T09:00:00Z")))
    assert results("standby") == []
    assert results() == results() == [SpareLost(RUN_KEY, UID, "n3")], "until it is answered by another place"
    roster.handle_changes([Change(pod(), None)])
    assert results() == [SpareLost(RUN_KEY, UID, "n3")]
    roster.handle_changes(additions(pod("Failed")))
    assert results() == [], "it failed by itself, and is made again"


def test_n1_unbound_pod_counts_only_for_a_run_that_exists() -> None:
    """Otherwise anybody could fill nodes with pods that never run."""
    base = stored_pod(0, "Pending")
    live = msgspec.structs.replace(base.value, pod=msgspec.structs.replace(base.value.pod, bound=False))
    pod = StoredObject(base.uid, base.name, "ns", "1", live)
    known, unknown = ObservedPods(lambda uid: uid == UID), ObservedPods(lambda _: False)
    for roster in (known, unknown):
        roster.handle_changes(additions(pod))
    assert (known.used("n1"), unknown.used("n1")) == (8, 0)
