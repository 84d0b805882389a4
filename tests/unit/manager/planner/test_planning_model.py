"""Runs from their submission to their end, on a cluster in memory."""

import msgspec
import pytest

from jobtree.api.schema.quantities import MINUTE, SECOND, format_time
from jobtree.core.lottery.resolution_record import Record, verify
from jobtree.kube.http.api_errors import StatusError
from jobtree.kube.http.api_resources import BUDGETS, LEASES, PODS, RESERVATIONS, RUNS
from jobtree.kube.installation import FINALIZER
from jobtree.manager.planner.reservation_status import BUSY_MS
from jobtree.manager.planner.status_updates import REST_MS, TURN_MS
from tests.unit.core.build import H100
from tests.unit.manager.cluster_objects import (
    POLICY,
    TEMPLATE,
    endings,
    finish_pods,
    leases_of,
    phase,
    pods_of,
    put_budget,
    put_nodes,
    put_policy,
    put_run,
    put_tree,
    states,
)
from tests.unit.manager.memory_cluster import Body, Manager, Server, StoppedError


def fleet(nodes: int = 4, gpus: int = 64, *, hasty: bool = True) -> Server:
    server = Server()
    put_policy(server, POLICY if hasty else TEMPLATE)
    put_nodes(server, "nv-a", nodes)
    put_budget(server, "org", gpus)
    return server


def test_run_starts_and_completes() -> None:
    server = fleet()
    put_run(server, "r", "org", 16)
    manager = Manager(server)
    manager.settle()
    assert phase(server, "r") == "Running"
    assert [pod["status"]["phase"] for pod in pods_of(server, "r")] == ["Running", "Running"]
    assert endings(server, "r") == ["open"]
    finish_pods(server, "r")
    manager.settle()
    assert (phase(server, "r"), endings(server, "r")) == ("Completed", ["Completed"])
    assert manager.violations == []


def test_quiet_cluster_costs_no_writes() -> None:
    server = fleet(hasty=False)
    put_run(server, "r", "org", 32)
    put_run(server, "waits", "org", 16)
    manager = Manager(server)
    manager.settle()
    before = manager.gate.writes
    server.now += 60_000
    server.change(
        "/api/v1/nodes/nv-a-00",
        {"status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "x"}]}},
        "",
        merge=True,
    )
    manager.settle()
    assert manager.gate.writes == before
    restarted = Manager(server)
    restarted.settle()
    assert restarted.gate.writes == 0


def test_deleted_run_ends_its_leases_and_pods_first() -> None:
    server = fleet()
    put_run(server, "r", "org", 16)
    manager = Manager(server)
    manager.settle()
    server.delete(RUNS.path("ns", "r"))
    assert RUNS.path("ns", "r") in server.objects
    manager.settle()
    assert server.all(RUNS) == []
    assert server.all(PODS) == []
    assert [lease["status"]["closureReason"] for lease in server.all(LEASES)] == ["Cancelled"]
    assert manager.model.pod_set_tracker._desired == {}


def test_deleted_waiting_run_leaves_no_objects() -> None:
    """A user may submit a Run with the finalizer; a waiting Run is deleted with or without it."""
    server = fleet(nodes=1)
    put_run(server, "waits", "org", 16)
    server.change(RUNS.path("ns", "waits"), {"metadata": {"finalizers": [FINALIZER]}}, "", merge=True)
    manager = Manager(server)
    manager.settle()
    server.delete(RUNS.path("ns", "waits"))
    manager.settle()
    assert server.all(RUNS) == []
    assert manager.model.pod_set_tracker._desired == {}


@pytest.mark.parametrize("manager_runs", [True, False])
def test_run_without_its_finalizer_still_ends_its_leases(manager_runs: bool) -> None:
    """This is logged, but breaks no invariant: users may remove the finalizer."""
    server = fleet()
    put_run(server, "r", "org", 16)
    manager = Manager(server)
    manager.settle()
    if not manager_runs:
        server.watchers = []
    server.change(RUNS.path("ns", "r"), {"metadata": {"finalizers": None}}, "", merge=True)
    server.delete(RUNS.path("ns", "r"))
    server.now += 1000
    if not manager_runs:
        manager = Manager(server)
    manager.settle()
    assert (server.all(RUNS), endings(server, "r")) == ([], ["Cancelled"])
    assert (manager.violations, manager.broken()) == ([], [])
    (lease,) = leases_of(server, "r")
    assert manager.logged("a Run is gone that held a lease") == [lease["metadata"]["name"]]


def test_lease_deleted_by_a_user_is_written_again_and_counts() -> None:
    server = fleet()
    put_run(server, "r", "org", 16)
    manager = Manager(server)
    manager.settle()
    (lease,) = leases_of(server, "r")
    server.delete(LEASES.path(name=lease["metadata"]["name"]))
    manager.settle()
    (again,) = leases_of(server, "r")
    assert again["spec"] == lease["spec"]
    assert [text for text in manager.violations if text.startswith("I6")] != []


def test_lease_without_a_run_is_ended() -> None:
    server = fleet()
    put_run(server, "r", "org", 16)
    manager = Manager(server)
    manager.settle()
    (lease,) = leases_of(server, "r")
    spec = {
        **lease["spec"],
        "runRef": {**lease["spec"]["runRef"], "uid": "another"},
        "slots": ["nv-a-03#0-7"],
    }
    server.create(LEASES.path(), {"kind": "Lease", "metadata": {"name": "minted"}, "spec": spec})
    manager.settle()
    assert server.find(LEASES.path(name="minted"))["status"]["closureReason"] == "Cancelled"
    assert endings(server, "r") == ["Cancelled", "open"]


def test_failed_pod_starts_the_next_attempt_and_counts() -> None:
    server = fleet()
    put_run(server, "r", "org", 16)
    manager = Manager(server)
    manager.settle()
    finish_pods(server, "r", "Failed", ranks=1)
    manager.settle()
    status = server.run("r")["status"]
    assert (status["attempt"], status["restarts"], phase(server, "r")) == (2, 1, "Running")
    assert status["resumeAt"] == format_time(server.now + 10_000)
    running = [pod for pod in pods_of(server, "r") if pod["status"]["phase"] == "Running"]
    assert running == []
    server.now += 6_000
    manager.settle()
    assert manager.model.status_publisher.refresh_due_at() == server.now + 4_000, (
        "it wakes up to tell that it goes on"
    )
    server.now += 4_000
    manager.settle()
    running = [pod for pod in pods_of(server, "r") if pod["status"]["phase"] == "Running"]
    assert [pod["metadata"]["labels"]["rq.davidlangworthy.io/attempt"] for pod in running] == ["2", "2"]
    assert "resumeAt" not in server.run("r")["status"], "the pause is over"


def test_pod_deleted_by_a_user_is_replaced_and_does_not_count() -> None:
    server = fleet()
    put_run(server, "r", "org", 16)
    manager = Manager(server)
    manager.settle()
    server.delete(PODS.path("ns", pods_of(server, "r")[0]["metadata"]["name"]))
    manager.settle()
    status = server.run("r")["status"]
    assert (status["attempt"], status.get("restarts", 0)) == (2, 0)
    assert len(pods_of(server, "r")) == 2


def test_due_promise_stops_the_loser_and_starts_the_winner() -> None:
    server = fleet(nodes=2)
    put_budget(server, "other", 64)
    put_run(server, "first", "org", 16)
    manager = Manager(server)
    manager.settle()
    server.now += 60_000
    put_run(server, "second", "other", 16)
    manager.settle()
    assert (phase(server, "second"), states(server)) == ("Reserved", {"second-1": "Pending"})
    assert server.run("first")["status"]["risk"][0]["killProbability"] == "1"
    server.now += 60_000
    manager.settle()
    assert (phase(server, "first"), phase(server, "second")) == ("Reserved", "Running")
    assert endings(server, "first") == ["RandomPreempt"]
    assert states(server)["second-1"] == "Activated"
    assert [pod["metadata"]["labels"]["rq.davidlangworthy.io/run"] for pod in server.all(PODS)] == [
        "second"
    ] * 2
    assert manager.violations == []


def test_survivor_of_a_lottery_is_immune_though_a_crash_kept_its_status_from_saying_so() -> None:
    """Peace (R4) follows from the record, which is the commit point of the draw."""
    server = fleet(nodes=2)
    put_budget(server, "other", 16)
    for name in ("a", "b"):
        put_run(server, name, "org", 8)
    manager = Manager(server)
    manager.settle()
    server.now += 60_000
    put_run(server, "winner", "other", 8)
    manager.settle()
    server.now += 60_000
    manager.settle()
    (survivor,) = (name for name in ("a", "b") if phase(server, name) == "Running")
    allocation = server.run(survivor)["status"]["allocation"]
    drawn_at = allocation.pop("notDrawnAt")
    Manager(server).settle()
    assert server.run(survivor)["status"]["allocation"]["notDrawnAt"] == drawn_at


def test_record_of_a_lottery_stays_when_the_winner_is_deleted() -> None:
    """Losers can check it as long as leases are kept, and no other Reservation gets its name."""
    server = fleet(nodes=2)
    put_budget(server, "other", 16)
    put_run(server, "loser", "org", 16)
    manager = Manager(server)
    manager.settle()
    for _ in range(2):
        put_run(server, "winner", "other", 16)
        manager.settle()
        server.now += 60_000
        manager.settle()
        assert phase(server, "winner") == "Running"
        server.delete(RUNS.path("ns", "winner"))
        manager.settle()
        server.now += 60_000
        manager.settle()
    proofs = [body for body in server.all(RESERVATIONS) if "lottery" in body["status"]]
    assert [body["metadata"]["name"] for body in proofs] == ["winner-1", "winner-2"]
    assert [verify(msgspec.convert(body["status"]["lottery"], Record)) for body in proofs] == [[], []]
    server.now += 31 * 24 * 3_600_000
    put_run(server, "anyone", "org", 8)
    manager.settle()
    assert [body for body in server.all(RESERVATIONS) if "lottery" in body["status"]] == []


def test_new_manager_handles_what_happened_without_a_manager() -> None:
    server = fleet()
    put_run(server, "done", "org", 8)
    put_run(server, "hit", "org", 8)
    Manager(server).settle()
    finish_pods(server, "done")
    (pod,) = pods_of(server, "hit")
    server.delete(f"/api/v1/nodes/{pod['spec']['nodeName']}")
    Manager(server).settle()
    assert (phase(server, "done"), endings(server, "done")) == ("Completed", ["Completed"])
    assert (phase(server, "hit"), endings(server, "hit")) == ("Running", ["CapacityLost", "open"])


def test_stages_of_a_tree_start_together_after_their_preparation() -> None:
    """A job tree, as in scenario 12."""
    server = fleet(gpus=16)
    put_tree(server, "tree", "org")
    manager = Manager(server)
    manager.settle()
    assert (phase(server, "tree-prep"), phase(server, "tree-train")) == ("Running", "Waiting")
    assert len(pods_of(server, "tree-prep")) == 2
    finish_pods(server, "tree-prep")
    manager.settle()
    assert [phase(server, f"tree-{stage}") for stage in ("prep", "train", "eval")] == [
        "Completed",
        "Reserved",
        "Reserved",
    ]
    assert states(server) == {"tree-1": "Pending"}
    budget = server.find(BUDGETS.path(name="org"))
    envelopes = [{**budget["spec"]["envelopes"][0], "concurrency": 24}]
    server.change(BUDGETS.path(name="org"), {"spec": {"envelopes": envelopes}}, "", merge=True)
    manager.settle()
    assert [phase(server, f"tree-{stage}") for stage in ("train", "eval")] == ["Running", "Running"]
    starts = {
        lease["spec"]["start"] for stage in ("train", "eval") for lease in leases_of(server, f"tree-{stage}")
    }
    assert len(starts) == 1
    finish_pods(server, "tree-train")
    finish_pods(server, "tree-eval")
    manager.settle()
    assert phase(server, "tree") == "Completed"
    assert manager.violations == []


def test_run_waits_with_the_answer_of_the_server_when_its_pod_is_invalid() -> None:
    """It holds nothing after the grace (H5), and is tried again after a pause."""
    server = fleet()
    put_run(server, "r", "org", 8)
    server.refused = {PODS.plural: StatusError(422, "Invalid", "spec.containers[0].image: Required value")}
    manager = Manager(server)
    manager.settle()
    assert (phase(server, "r"), server.run("r")["status"]["reason"]) == ("Running", "Refused")
    pass_time(server, manager, 3 * MINUTE)
    status = server.run("r")["status"]
    assert (status["phase"], status["reason"], endings(server, "r")) == (
        "Pending",
        "Unplaceable",
        ["CapacityLost"],
    )
    assert "Required value" in status["message"]
    server.refused = {}
    pass_time(server, manager, 3 * MINUTE)
    assert (phase(server, "r"), len(pods_of(server, "r"))) == ("Running", 1)
    assert manager.violations == []


def pass_time(server: Server, manager: Manager, milliseconds: int) -> None:
    for _ in range(0, milliseconds, 10 * SECOND):
        server.now += 10 * SECOND
        manager.settle()


def test_running_run_keeps_its_pods_when_it_is_edited() -> None:
    server = fleet()
    put_run(server, "r", "org", 16, max_duration="2h")
    manager = Manager(server)
    manager.settle()
    before = [pod["metadata"]["uid"] for pod in pods_of(server, "r")]
    server.change(RUNS.path("ns", "r"), {"spec": {"runtime": {"maxDuration": "1h"}}}, "", merge=True)
    manager.settle()
    assert [pod["metadata"]["uid"] for pod in pods_of(server, "r")] == before
    assert server.run("r")["status"]["observedGeneration"] == 2
    server.now += 3_600_000
    manager.settle()
    assert (phase(server, "r"), server.run("r")["status"]["reason"]) == ("Failed", "DurationExceeded")


def test_recreated_run_gets_new_leases() -> None:
    server = fleet()
    put_run(server, "r", "org", 16)
    manager = Manager(server)
    manager.settle()
    body = server.find(RUNS.path("ns", "r"))
    body["metadata"].pop("finalizers")  # somebody was in a hurry
    server.delete(RUNS.path("ns", "r"))
    put_run(server, "r", "org", 16)
    manager.settle()
    assert sorted(endings(server, "r")) == ["Cancelled", "open"]
    assert (phase(server, "r"), len(pods_of(server, "r"))) == ("Running", 2)


def test_risk_is_written_to_running_pods() -> None:
    server = fleet(nodes=2)
    put_budget(server, "other", 64)
    put_run(server, "first", "org", 16)
    manager = Manager(server)
    manager.settle()
    put_run(server, "second", "other", 16)
    manager.settle()
    risks = {pod["metadata"]["annotations"]["rq.davidlangworthy.io/risk"] for pod in pods_of(server, "first")}
    assert len(risks) == 1
    assert '"reservation":"second-1"' in risks.pop()


def test_failed_node_stays_cordoned_until_a_user_uncordons_it() -> None:
    server = fleet()
    put_run(server, "r", "org", 8)
    manager = Manager(server)
    manager.settle()
    (pod,) = pods_of(server, "r")
    path = f"/api/v1/nodes/{pod['spec']['nodeName']}"
    taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
    server.change(path, {"spec": {"taints": [taint]}}, "", merge=True)
    manager.settle()
    node = server.find(path)
    assert node["spec"]["unschedulable"] is True
    assert node["metadata"]["annotations"]["rq.davidlangworthy.io/cordoned"].startswith("the node failed by")
    server.change(path, {"spec": {"taints": [], "unschedulable": False}}, "", merge=True)
    manager.settle()
    assert "rq.davidlangworthy.io/cordoned" not in server.find(path)["metadata"]["annotations"]


def test_run_without_a_template_gets_that_of_the_policy() -> None:
    server = Server()
    put_policy(server, "defaultTemplate: {spec: {containers: [{name: main, image: house:1}]}}")
    put_nodes(server, "nv-a", 1)
    put_budget(server, "org", 8)
    put_run(server, "r", "org", 8)
    Manager(server).settle()
    (pod,) = pods_of(server, "r")
    assert pod["spec"]["containers"][0]["image"] == "house:1"


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (None, "spec.template is absent, and the policy has no defaultTemplate"),
        ({"spec": {"containers": [{"name": "c", "image": "i", "env": "x"}]}}, "cannot be made into a pod"),
        (
            {"metadata": {"labels": "x"}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
            "cannot be made",
        ),
    ],
)
def test_run_waits_with_a_reason_when_its_template_makes_no_pod(template: Body | None, said: str) -> None:
    server = Server()
    put_nodes(server, "nv-a", 1)
    put_budget(server, "org", 8)
    put_run(server, "r", "org", 8, max_restarts=0, template=template)
    manager = Manager(server)
    manager.settle()
    pass_time(server, manager, 3 * MINUTE)
    status = server.run("r")["status"]
    assert (status["phase"], status["reason"], said in status["message"]) == ("Pending", "Unplaceable", True)
    assert pods_of(server, "r") == []


def test_pod_deleted_before_it_was_seen_is_replaced() -> None:
    server = fleet()
    put_run(server, "r", "org", 16)
    manager = Manager(server)
    manager.turn()
    server.delete(PODS.path("ns", pods_of(server, "r")[0]["metadata"]["name"]))
    manager.settle()
    assert (server.run("r")["status"]["attempt"], len(pods_of(server, "r"))) == (2, 2)


def test_budget_status_is_written_every_other_second_while_gangs_start() -> None:
    server = fleet(nodes=4)
    manager = Manager(server)
    manager.settle()

    def used() -> int:
        status = server.find(BUDGETS.path("", "org"))["status"]
        return int(status["envelopes"][0]["usedGPUs"])

    def start(name: str) -> int:
        put_run(server, name, "org", 8)
        manager.turn()
        return used()

    server.now += BUSY_MS
    assert start("first") == 8, "the first change is written at once"
    assert start("second") == 8, "more than once in a second is not"
    assert manager.model.status_publisher.refresh_due_at() == server.now + REST_MS
    manager.turn()
    assert used() == 16, "nothing else is to be done"
    assert start("third") == 16
    server.now += BUSY_MS
    assert start("fourth") == 32, "it is time, however much is decided"


def test_statuses_of_many_budgets_are_written_in_turns_while_gangs_start() -> None:
    server = fleet(nodes=8)
    teams = [f"team{number}" for number in range(2 * BUSY_MS // TURN_MS)]
    for team in teams:
        put_budget(server, team, 8)
    manager = Manager(server)
    manager.settle()
    server.now += 2 * BUSY_MS

    def start(name: str) -> set[str]:
        """Starts one more GPU for every team; returns the used GPUs in their Budgets."""
        for team in teams:
            put_run(server, f"{team}-{name}", team, 1)
        manager.turn()
        envelopes = (server.find(BUDGETS.path("", team))["status"]["envelopes"][0] for team in teams)
        return {str(envelope["usedGPUs"]) for envelope in envelopes}

    assert start("first") == {"1"}, "no status was written for long"
    server.now += BUSY_MS
    assert start("second") == {"1"}, "many Budgets are written less often than one"
    server.now += BUSY_MS
    assert start("third") == {"3"}


def test_decisions_do_not_wait_for_forecasts_and_new_promises_are_written_at_once() -> None:
    server = fleet(nodes=4, hasty=False)
    put_nodes(server, "nv-b", 1, flavor="A100")
    for name in ("here", "there"):
        put_budget(server, name, 64, flavor="A100" if name == "there" else H100)
    put_budget(server, "beside", 8, flavor="A100")
    put_run(server, "runs", "org", 24)
    put_run(server, "runs-there", "there", 8, flavor="A100", max_duration="10h")
    put_run(server, "waits", "here", 16)
    manager = Manager(server)
    manager.settle()

    def deficit(reservation: str) -> int:
        status = server.find(RESERVATIONS.path("ns", reservation))["status"]
        return int(status["forecast"]["deficitGPUs"])

    def is_expected(reservation: str) -> bool:
        return "expectedStart" in server.find(RESERVATIONS.path("ns", reservation))["status"]["forecast"]

    def promise(name: str) -> None:
        put_run(server, name, "beside", 8, flavor="A100")
        manager.turn()
        assert states(server)[f"{name}-1"] == "Pending", "a promise is written in the turn that makes it"

    assert deficit("waits-1") == 8
    put_run(server, "small", "org", 8, max_duration="1m")  # it flows through what is promised
    promise("first")
    assert phase(server, "small") == "Running"
    assert [risk["reservation"] for risk in server.run("runs-there")["status"]["risk"]] == ["first-1"]
    assert deficit("waits-1") == 8, "other forecasts are written when nothing is decided"
    assert not is_expected("first-1"), "that depends on all who wait"
    assert manager.model.status_publisher.refresh_due_at() == server.now + REST_MS
    manager.turn()
    assert deficit("waits-1") == 16
    assert is_expected("first-1")
    server.delete(RUNS.path("ns", "small"))
    promise("second")
    assert deficit("waits-1") == 16
    server.now += BUSY_MS
    promise("third")
    assert deficit("waits-1") == 8, "it is time, however much is decided"


def test_start_calibration_survives_a_restart() -> None:
    """The first estimate for a Run, and its start, stay in its Reservation."""
    server = fleet(2, 16)
    put_run(server, "holder", "org", 16, max_duration="10h")
    manager = Manager(server)
    manager.settle()
    put_run(server, "next", "org", 16)
    began = server.now
    manager.settle()
    name = ("ns", "next-1")
    calibration = Manager(server).model.world.start_calibration
    assert calibration.of(name) == manager.model.world.start_calibration.of(name)
    assert server.find(RESERVATIONS.path(*name))["status"]["told"]["at"]
    server.now += 60_000
    finish_pods(server, "holder")
    manager = Manager(server)
    manager.settle()
    assert phase(server, "next") == "Running"
    estimate = Manager(server).model.world.start_calibration.of(name)
    assert estimate is not None
    assert (estimate.at, estimate.start) == (began, began + 60_000)


def start_counts_after_crash(writes: int) -> bool:
    """Kills a manager after ``writes`` writes of a start; the start must still be counted.

    Returns whether the manager made so many writes.
    """
    server = fleet(2, 16)
    put_run(server, "holder", "org", 16, max_duration="10h")
    manager = Manager(server)
    manager.settle()
    put_run(server, "next", "org", 16)
    manager.settle()
    server.now += 60_000
    finish_pods(server, "holder")
    crashed = False
    try:
        Manager(server, stop_after=writes).settle()
    except StoppedError:
        crashed = True
    Manager(server).settle()
    first_estimate = Manager(server).model.world.start_calibration.of(("ns", "next-1"))
    assert first_estimate is not None, writes
    assert first_estimate.start is not None, writes
    return crashed


@pytest.mark.parametrize("writes", [2, 5])
def test_start_counts_for_calibration_when_the_manager_dies_before_it_writes_the_reservation(
    writes: int,
) -> None:
    assert start_counts_after_crash(writes)
