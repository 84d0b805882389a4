"""What pods tell of their Run, and what they use of their node."""

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
CAST = PodSet(1, 8, (PodPlacement("0-0-1", "n1", 8, 0, 0, 0), PodPlacement("0-1-1", "n2", 8, 0, 1, 1)))
COMPANY = DesiredPods(RUN, CAST)
RUN_KEY = (RUN.metadata.namespace, RUN.metadata.name)
NAMES = [f"r-{UID[:8]}-0-0-1", f"r-{UID[:8]}-0-1-1"]


def live(
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


def came(*pods: StoredObject[LivePod]) -> list[Change[LivePod]]:
    return [Change(None, pod) for pod in pods]


def told(roster: ObservedPods, asked: set[str] | None = None) -> list[tuple[bool, tuple[int, int]] | str]:
    found: list[tuple[bool, tuple[int, int]] | str] = []
    for news in roster.outcomes(UID, COMPANY, 5, asked or set()):
        if isinstance(news, RankLost):
            found.append((news.failed, news.group_rank))
        elif isinstance(news, RunSucceeded):
            found.append("done")
    return found


def test_all_ranks_succeeded_is_told_once() -> None:
    roster = ObservedPods()
    roster.handle_changes(came(live(0, "Succeeded"), live(1)))
    assert told(roster) == []
    roster.handle_changes(came(live(1, "Succeeded")))
    assert told(roster) == ["done"]
    assert told(roster) == []
    roster.clear_reported(UID)
    assert told(roster) == ["done"]


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
def test_a_failed_rank_counts_unless_somebody_else_ended_it(reason: str, counts: bool) -> None:
    roster = ObservedPods()
    roster.handle_changes(came(live(0), live(1, "Failed", reason=reason)))
    assert told(roster) == [(counts, (0, 1))]


def test_a_pod_that_is_gone_is_lost_if_it_was_ever_there() -> None:
    roster = ObservedPods()
    roster.handle_changes(came(live(0)))
    assert told(roster) == [], "the other one was not made yet"
    roster.handle_changes([Change(live(0), None)])
    assert told(roster) == [(False, (0, 0))]


def test_a_pod_that_others_delete_is_lost_and_one_that_we_end_is_not() -> None:
    roster = ObservedPods()
    roster.handle_changes(came(live(0, deleted="2026-01-05T09:00:00Z"), live(1)))
    assert told(roster, {"pod-0-ns"}) == []
    assert told(roster) == [(False, (0, 0))]


def test_a_rank_that_moves_is_not_lost_with_its_old_pod() -> None:
    roster = ObservedPods()
    roster.handle_changes(came(live(0), live(1, node="elsewhere")))
    assert told(roster) == []


def test_a_pod_of_another_namespace_tells_nothing_of_a_run_whatever_it_says() -> None:
    roster = ObservedPods()
    roster.handle_changes(came(live(0), live(1)))
    roster.handle_changes(came(live(0, "Failed", namespace="eve"), live(1, "Succeeded", namespace="eve")))
    assert told(roster) == []
    roster.handle_changes([Change(live(0, namespace="eve"), None)])
    assert (told(roster), sorted(roster.pods_of(RUN))) == ([], NAMES)


def test_gpus_of_a_node_are_those_of_pods_that_have_not_ended_and_those_asked_for() -> None:
    roster = ObservedPods()
    roster.handle_changes(came(live(0)))
    roster.expect_pod(("ns", NAMES[1]), "n2", 8)
    assert (roster.used("n1"), roster.used("n2"), roster.used("n3")) == (8, 8, 0)
    roster.handle_changes(came(live(1)))
    assert roster.used("n2") == 8
    roster.handle_changes([Change(live(0), live(0, "Succeeded")), Change(live(1), None)])
    assert (roster.used("n1"), roster.used("n2")) == (0, 0)


def test_a_standby_pod_that_somebody_evicts_is_told_and_one_that_jobtree_ends_is_not() -> None:
    standby = PodPlacement("spare-2-0", "n3", 8, 0)
    spared = DesiredPods(RUN, PodSet(1, 8, (*CAST.placements, standby)))
    name = f"r-{UID[:8]}-spare-2-0"

    def pod(phase: str = "Running", deleted: str | None = None) -> StoredObject[LivePod]:
        known = live(0, phase, deleted=deleted)
        value = msgspec.structs.replace(known.value.pod, name=name, uid="standby", node="n3")
        return StoredObject("standby", name, "ns", "1", msgspec.structs.replace(known.value, pod=value))

    def news(*asked: str) -> list[object]:
        return list(roster.outcomes(UID, spared, 5, set(asked)))

    roster = ObservedPods()
    roster.handle_changes(came(live(0), live(1), pod()))
    assert news() == []
    roster.handle_changes(came(pod(deleted="2026-01-05T09:00:00Z")))
    assert news("standby") == []
    assert news() == news() == [SpareLost(RUN_KEY, UID, "n3")], "until it is answered by another place"
    roster.handle_changes([Change(pod(), None)])
    assert news() == [SpareLost(RUN_KEY, UID, "n3")]
    roster.handle_changes(came(pod("Failed")))
    assert news() == [], "it failed by itself, and is made again"
