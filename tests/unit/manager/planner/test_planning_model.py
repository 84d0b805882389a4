"""From submit to the end, on a cluster in memory."""

import msgspec
import pytest

from jobtree.api.schema.quantities import format_time
from jobtree.core.lottery.resolution_record import Record, verify
from jobtree.kube.http.api_errors import StatusError
from jobtree.kube.http.api_resources import BUDGETS, LEASES, PODS, RESERVATIONS, RUNS
from jobtree.kube.installation import FINALIZER
from jobtree.manager.planner.reservation_status import BUSY_MS
from jobtree.manager.planner.status_updates import REST_MS, TURN_MS
from tests.unit.core.build import H100
from tests.unit.manager.cluster import Body, Manager, Server, StoppedError
from tests.unit.manager.stage import (
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


def fleet(nodes: int = 4, gpus: int = 64, *, hasty: bool = True) -> Server:
    server = Server()
    put_policy(server, POLICY if hasty else TEMPLATE)
    put_nodes(server, "nv-a", nodes)
    put_budget(server, "org", gpus)
    return server


def test_a_run_starts_runs_and_completes() -> None:
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


def test_a_cluster_at_rest_costs_no_writes_whatever_time_it_is() -> None:
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
    again = Manager(server)
    again.settle()
    assert again.gate.writes == 0


def test_a_run_that_is_deleted_ends_its_leases_and_its_pods_before_it_goes() -> None:
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


def test_a_run_that_never_held_anything_leaves_nothing_behind() -> None:
    """Whoever submits may set the finalizer; a Run that waits goes with it as well as without."""
    server = fleet(nodes=1)
    put_run(server, "waits", "org", 16)
    server.change(RUNS.path("ns", "waits"), {"metadata": {"finalizers": [FINALIZER]}}, "", merge=True)
    manager = Manager(server)
    manager.settle()
    server.delete(RUNS.path("ns", "waits"))
    manager.settle()
    assert server.all(RUNS) == []
    assert manager.model.pod_set_tracker._desired == {}


@pytest.mark.parametrize("manager_is_there", [True, False])
def test_a_run_whose_finalizer_was_taken_away_still_ends_its_leases(manager_is_there: bool) -> None:
    """Not a broken invariant: people may do that. It is told."""
    server = fleet()
    put_run(server, "r", "org", 16)
    manager = Manager(server)
    manager.settle()
    if not manager_is_there:
        server.watchers = []
    server.change(RUNS.path("ns", "r"), {"metadata": {"finalizers": None}}, "", merge=True)
    server.delete(RUNS.path("ns", "r"))
    server.now += 1000
    if not manager_is_there:
        manager = Manager(server)
    manager.settle()
    assert (server.all(RUNS), endings(server, "r")) == ([], ["Cancelled"])
    assert (manager.violations, manager.broken()) == ([], [])
    (lease,) = leases_of(server, "r")
    assert manager.logged("a Run is gone that held a lease") == [lease["metadata"]["name"]]


def test_a_lease_deleted_by_hand_is_put_back_and_counted() -> None:
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


def test_a_lease_that_nobody_holds_is_ended() -> None:
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


def test_a_failed_pod_begins_the_next_attempt_and_counts() -> None:
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


def test_a_pod_deleted_by_hand_is_replaced_and_does_not_count() -> None:
    server = fleet()
    put_run(server, "r", "org", 16)
    manager = Manager(server)
    manager.settle()
    server.delete(PODS.path("ns", pods_of(server, "r")[0]["metadata"]["name"]))
    manager.settle()
    status = server.run("r")["status"]
    assert (status["attempt"], status.get("restarts", 0)) == (2, 0)
    assert len(pods_of(server, "r")) == 2


def test_a_promise_comes_due_the_loser_goes_and_the_winner_runs() -> None:
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


def test_the_proof_of_a_lottery_outlives_the_run_that_won_it() -> None:
    """Losers may check it for as long as leases are kept, and nobody else's Reservation gets its name."""
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
    kept = [one for one in server.all(RESERVATIONS) if "lottery" in one["status"]]
    assert [one["metadata"]["name"] for one in kept] == ["winner-1", "winner-2"]
    assert [verify(msgspec.convert(one["status"]["lottery"], Record)) for one in kept] == [[], []]
    server.now += 31 * 24 * 3_600_000
    put_run(server, "anyone", "org", 8)
    manager.settle()
    assert [one for one in server.all(RESERVATIONS) if "lottery" in one["status"]] == []


def test_what_happened_while_no_manager_was_there_is_not_missed() -> None:
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


def test_a_tree_prepares_then_trains_and_evaluates_together() -> None:
    """SCENARIOS 12."""
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


def test_a_pod_that_can_never_be_made_fails_its_run_with_what_the_server_said() -> None:
    server = fleet()
    put_run(server, "r", "org", 8)
    server.refused = {PODS.plural: StatusError(422, "Invalid", "spec.containers[0].image: Required value")}
    manager = Manager(server)
    for _ in range(4):
        manager.settle()
        server.now += 600_000
    manager.settle()
    assert (phase(server, "r"), endings(server, "r")) == ("Failed", ["Failed"])
    assert "Required value" in server.run("r")["status"]["message"]


def test_a_run_edited_while_it_runs_keeps_its_pods() -> None:
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


def test_a_run_made_anew_under_its_name_gets_leases_of_its_own() -> None:
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


def test_risk_is_told_to_pods_that_run() -> None:
    server = fleet(nodes=2)
    put_budget(server, "other", 64)
    put_run(server, "first", "org", 16)
    manager = Manager(server)
    manager.settle()
    put_run(server, "second", "other", 16)
    manager.settle()
    told = {pod["metadata"]["annotations"]["rq.davidlangworthy.io/risk"] for pod in pods_of(server, "first")}
    assert len(told) == 1
    assert '"reservation":"second-1"' in told.pop()


def test_a_failed_node_is_cordoned_until_somebody_uncordons_it() -> None:
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


def test_without_a_template_the_administrators_is_used() -> None:
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
def test_what_cannot_be_made_into_a_pod_fails_its_run_with_the_reason(
    template: Body | None, said: str
) -> None:
    server = Server()
    put_nodes(server, "nv-a", 1)
    put_budget(server, "org", 8)
    put_run(server, "r", "org", 8, max_restarts=0, template=template)
    manager = Manager(server)
    manager.settle()
    status = server.run("r")["status"]
    assert (status["phase"], status["reason"], said in status["message"]) == (
        "Failed",
        "RestartsExhausted",
        True,
    )
    assert pods_of(server, "r") == []


def test_a_pod_that_is_deleted_before_anybody_saw_it_is_replaced_too() -> None:
    server = fleet()
    put_run(server, "r", "org", 16)
    manager = Manager(server)
    manager.turn()
    server.delete(PODS.path("ns", pods_of(server, "r")[0]["metadata"]["name"]))
    manager.settle()
    assert (server.run("r")["status"]["attempt"], len(pods_of(server, "r"))) == (2, 2)


def test_a_budget_is_told_at_rest_and_every_other_second_while_gangs_start_all_the_time() -> None:
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
    assert start("first") == 8, "the first is told at once"
    assert start("second") == 8, "more than once in a second is not"
    assert manager.model.status_publisher.refresh_due_at() == server.now + REST_MS
    manager.turn()
    assert used() == 16, "nothing else is to be done"
    assert start("third") == 16
    server.now += BUSY_MS
    assert start("fourth") == 32, "it is time, however much is decided"


def test_many_budgets_take_turns_while_gangs_start_all_the_time() -> None:
    server = fleet(nodes=8)
    teams = [f"team{number}" for number in range(2 * BUSY_MS // TURN_MS)]
    for team in teams:
        put_budget(server, team, 8)
    manager = Manager(server)
    manager.settle()
    server.now += 2 * BUSY_MS

    def start(name: str) -> set[str]:
        """One more GPU for every team; what their Budgets say of it."""
        for team in teams:
            put_run(server, f"{team}-{name}", team, 1)
        manager.turn()
        told = (server.find(BUDGETS.path("", team))["status"]["envelopes"][0] for team in teams)
        return {str(one["usedGPUs"]) for one in told}

    assert start("first") == {"1"}, "it is long since they were told anything"
    server.now += BUSY_MS
    assert start("second") == {"1"}, "that often for one, not for so many"
    server.now += BUSY_MS
    assert start("third") == {"3"}


def test_no_decision_waits_for_forecasts_that_others_read_and_a_new_promise_is_told_at_once() -> None:
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
        assert states(server)[f"{name}-1"] == "Pending", "a promise is told in the step that makes it"

    assert deficit("waits-1") == 8
    put_run(server, "small", "org", 8, max_duration="1m")  # it flows through what is promised
    promise("first")
    assert phase(server, "small") == "Running"
    assert [risk["reservation"] for risk in server.run("runs-there")["status"]["risk"]] == ["first-1"]
    assert deficit("waits-1") == 8, "what others foresee is told when nothing else is to be done"
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


def test_experience_with_expected_starts_survives_a_restart() -> None:
    """What a waiting Run was told first stays with its Reservation, and so does when it then started."""
    server = fleet(2, 16)
    put_run(server, "holder", "org", 16, max_duration="10h")
    manager = Manager(server)
    manager.settle()
    put_run(server, "next", "org", 16)
    began = server.now
    manager.settle()
    name = ("ns", "next-1")
    again = Manager(server).model.world.start_calibration
    assert again.of(name) == manager.model.world.start_calibration.of(name)
    assert server.find(RESERVATIONS.path(*name))["status"]["told"]["at"]
    server.now += 60_000
    finish_pods(server, "holder")
    manager = Manager(server)
    manager.settle()
    assert phase(server, "next") == "Running"
    told = Manager(server).model.world.start_calibration.of(name)
    assert told is not None
    assert (told.at, told.start) == (began, began + 60_000)


def start_is_known_after_crash(writes: int) -> bool:
    """Kills a manager after so many writes of a start, if it makes that many; the start must be known."""
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
def test_start_counts_as_experience_when_the_manager_dies_before_its_reservation_is_written(
    writes: int,
) -> None:
    assert start_is_known_after_crash(writes)
