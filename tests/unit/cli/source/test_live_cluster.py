"""Commands on a live cluster, played by a fake server: what they print, and how they report refusals."""

from pathlib import Path

import pytest

from jobtree.api.schema.quantities import parse_time
from jobtree.client.source.live_cluster import ALIVE, dangling_leases, latest_lease_instant
from jobtree.client.source.live_runs import with_finalizer
from jobtree.client.source.server_refusals import sentence
from jobtree.kube.http.api_errors import StatusCause, StatusError
from jobtree.kube.installation import FINALIZER
from tests.unit.cli.cli_runner import CliRunner, CommandResult
from tests.unit.cli.fake_cluster import Override, as_served, fake_cluster
from tests.unit.cli.manifests import Body, budget, envelope, nodes, run
from tests.unit.kube.server import ReceivedRequest, Reply, event, refusal, status

BASE = "/apis/rq.davidlangworthy.io/v1"


def small_cluster() -> list[Body]:
    return [as_served(body) for body in (*nodes(2), budget("lab", envelope(8)), run("train"))]


def run_command(
    cli: CliRunner, *words: str, bodies: list[Body] | None = None, override: Override = lambda _: None
) -> CommandResult:
    with fake_cluster(cli.directory, *(small_cluster() if bodies is None else bodies), override=override):
        return cli.without_state("--kubeconfig", str(cli.directory / "config"), *words)


def test_state_prints_the_status_that_the_manager_wrote(cli: CliRunner) -> None:
    bodies = small_cluster()
    bodies[-1]["status"] = {"phase": "Pending", "reason": "NoFreeSlots", "observedGeneration": 1}
    result = run_command(cli, "state", bodies=bodies)
    assert (result.code, "default/train  org:lab  Pending" in result.out) == (0, True), result


def test_plan_computes_a_plan_only_for_files(cli: CliRunner) -> None:
    result = run_command(cli, "plan", "train")
    assert (result.code, "the manager has not planned this Run yet" in result.out) == (1, True), result
    result = run_command(
        cli, "plan", "-f", cli.write_file("new.yaml", run("new")), bodies=small_cluster()[:-1]
    )
    assert (result.code, "default/new would start now" in result.out) == (0, True), result


def test_topology_lists_pods_and_state_does_not(cli: CliRunner) -> None:
    with fake_cluster(cli.directory, *small_cluster()) as server:
        config = str(cli.directory / "config")
        cli.without_state("--kubeconfig", config, "state")
        assert not [request for request in server.requests if request.path.endswith("/pods")]
        cli.without_state("--kubeconfig", config, "topology")
        (pods,) = [request for request in server.requests if request.path.endswith("/pods")]
        assert pods.query["fieldSelector"] == ALIVE.fields


@pytest.mark.parametrize(
    ("reply", "code", "hint"),
    [
        (Reply(404, "page not found"), 3, "Jobtree is not installed"),
        (refusal(401, "Unauthorized"), 2, "may have expired"),
        (Reply(403, status(403, "Forbidden", 'User "x" cannot list resource "nodes"')), 2, "jobtree-planner"),
        (refusal(503, "ServiceUnavailable"), 74, "no"),
    ],
)
def test_state_says_what_to_do_when_the_server_refuses(
    cli: CliRunner, reply: Reply, code: int, hint: str
) -> None:
    result = run_command(cli, "state", override=lambda _: reply)
    assert (result.code, hint in result.err, "Traceback" in result.err) == (code, True, False), result


def test_sentence_adds_a_hint_to_the_error_of_the_server() -> None:
    invalid = StatusError(422, "Invalid", "is invalid", (StatusCause("", "must be at most 8", "spec.x"),))
    assert sentence(invalid) == "is invalid\n  spec.x: must be at most 8"
    not_found = StatusError(404, "NotFound", 'namespaces "x" not found')
    assert "kubectl get namespaces" in sentence(not_found)
    forbidden = StatusError(403, "Forbidden", 'User "x" cannot create resource "runs"')
    assert "jobtree-researcher" in sentence(forbidden)
    denied = StatusError(403, "Forbidden", "denied request: your owner may not be spent")
    assert sentence(denied) == "denied request: your owner may not be spent"
    own_webhook = StatusError(
        500, "InternalError", 'failed calling webhook "new.rq.davidlangworthy.io": refused'
    )
    assert "Runs and Budgets cannot be created now" in sentence(own_webhook)
    other_webhook = StatusError(500, "InternalError", 'failed calling webhook "x.example.com": refused')
    assert sentence(other_webhook) == other_webhook.message


def test_cancel_suggests_a_run_of_another_namespace(cli: CliRunner) -> None:
    bodies = [*small_cluster(), as_served(run("away", namespace="far"))]
    result = run_command(cli, "cancel", "away", bodies=bodies, override=missing("away"))
    assert (result.code, "did you mean far/away?" in result.err) == (3, True), result
    result = run_command(cli, "cancel", "nobody", bodies=bodies)
    assert (result.code, "kubectl runs state --all" in result.err) == (3, True), result


def missing(name: str) -> Override:
    def override(request: ReceivedRequest) -> Reply | None:
        is_missing = request.path == f"{BASE}/namespaces/default/runs/{name}"
        return Reply(404, status(404, "NotFound", f'runs "{name}" not found')) if is_missing else None

    return override


def test_name_is_looked_up_in_the_namespace_of_the_context_first(cli: CliRunner) -> None:
    bodies = [*small_cluster(), as_served(run("train", namespace="far"), "other")]
    assert (
        run_command(cli, "plan", "train", "-o", "name", bodies=bodies).out
        == "run.rq.davidlangworthy.io/train\n"
    )


def test_leases_without_their_run_or_node_are_left_out(cli: CliRunner) -> None:
    body = {
        "kind": "Lease",
        "apiVersion": "rq.davidlangworthy.io/v1",
        "metadata": {"name": "gone-1"},
        "spec": {"runRef": {"namespace": "default", "name": "gone"}, "slots": ["a01#0-7"]},
    }
    bodies = small_cluster()
    assert dangling_leases([*bodies, body]) == {id(body)}
    assert dangling_leases([*bodies, {**body, "status": {"end": "2026-01-05T09:00:00Z"}}]) == set()
    body["spec"] = {"runRef": {"namespace": "default", "name": "train"}, "slots": ["z99#0-7"]}
    assert dangling_leases([*bodies, body]) == {id(body)}, "its node is gone"
    assert run_command(cli, "state", bodies=[*bodies, body]).code == 0


def test_cluster_is_read_at_the_latest_instant_of_its_leases() -> None:
    """They lie in the future if the clock of a manager was ahead."""
    starts, ends = "2026-01-05T09:00:00Z", "2026-01-05T10:00:00.250Z"
    leases: list[Body] = [
        {"kind": "Lease", "spec": {"start": starts}, "status": {"end": ends}},
        {"kind": "Lease", "spec": {"start": starts}},
        {"kind": "Run", "spec": {}},
    ]
    assert latest_lease_instant(leases) == parse_time(ends)
    assert latest_lease_instant(leases[1:]) == parse_time(starts)
    assert latest_lease_instant([]) == 0


def test_submit_waits_for_the_status_of_the_manager(cli: CliRunner) -> None:
    created = as_served(run("new"))
    created["metadata"]["resourceVersion"] = "5"

    def override(request: ReceivedRequest) -> Reply | None:
        if request.method == "POST":
            return Reply(201, created)
        if request.query.get("watch") == "true":
            status = {"phase": "Running", "message": "Admitted: 8 GPUs", "observedGeneration": 1}
            lines = [
                event("MODIFIED", created),
                event("MODIFIED", {"kind": "Run", **created, "status": status}),
            ]
            return Reply(parts=lines)
        return None

    file = cli.write_file("new.yaml", run("new"))
    result = run_command(cli, "submit", "-f", file, override=override)
    assert result.out == "default/new is Running: Admitted: 8 GPUs\n", result


def test_finalizer_is_added_to_runs_that_can_hold_leases() -> None:
    assert with_finalizer(run("one"))["metadata"]["finalizers"] == [FINALIZER]
    assert "finalizers" not in run("one")["metadata"], "the body from the file is not changed"
    guarded = run("two")
    guarded["metadata"]["finalizers"] = ["example.com/own", FINALIZER]
    assert with_finalizer(guarded)["metadata"]["finalizers"] == ["example.com/own", FINALIZER]
    tree = {**run("tree"), "spec": {"owner": "org:lab", "stages": [{"name": "only"}]}}
    assert with_finalizer(tree) == tree, "a tree holds no leases"
    lab_budget = budget("lab", envelope(8))
    assert with_finalizer(lab_budget) == lab_budget


def test_submit_adds_the_finalizer(cli: CliRunner) -> None:
    posted: list[Body] = []

    def override(request: ReceivedRequest) -> Reply | None:
        if request.method != "POST":
            return None
        posted.append(request.body)
        running = {"phase": "Running", "observedGeneration": 1}
        return Reply(201, {**as_served(request.body), "status": running})

    run_command(cli, "submit", "-f", cli.write_file("new.yaml", run("new")), override=override)
    assert [body["metadata"]["finalizers"] for body in posted] == [[FINALIZER]]


def test_submit_tries_several_objects_as_a_dry_run_first(cli: CliRunner) -> None:
    posted: list[tuple[str, str]] = []

    def override(request: ReceivedRequest) -> Reply | None:
        if request.method != "POST":
            return None
        posted.append((request.body["metadata"]["name"], request.query.get("dryRun", "")))
        return (
            Reply(409, status(409, "AlreadyExists", "taken"))
            if posted[-1][0] == "two"
            else Reply(201, request.body)
        )

    result = run_command(
        cli, "submit", "-f", cli.write_file("new.yaml", run("one"), run("two")), override=override
    )
    assert result.code == 4
    assert posted == [("one", "All"), ("two", "All")]


def test_completion_lists_live_names_and_prints_no_errors(cli: CliRunner, tmp_path: Path) -> None:
    def completed(*words: str, override: Override = lambda _: None) -> list[str]:
        with fake_cluster(
            cli.directory, *small_cluster(), as_served(run("far-off", namespace="far")), override=override
        ):
            config = str(tmp_path / "config")
            return cli.without_state("__complete", "plan", "--kubeconfig", config, *words).out.splitlines()

    assert completed("") == ["train", ":4"]
    assert completed("far/") == ["far/far-off", ":4"]
    assert completed("", override=lambda _: refusal(403, "Forbidden")) == [":4"]
    assert cli.without_state("__complete", "plan", "--kubeconfig", str(tmp_path / "none"), "").out == ":4\n"


def test_watch_retries_until_the_server_answers(cli: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two list requests fail between two changes, then the Run completes."""
    monkeypatch.setattr("jobtree.cli.tasks.run_watch.RETRY_SECONDS", 0)
    bodies = small_cluster()
    train = bodies[-1]
    train["status"] = {"phase": "Pending"}
    refusals = [refusal(503, "ServiceUnavailable"), refusal(503, "ServiceUnavailable")]

    def override(request: ReceivedRequest) -> Reply | None:
        if request.query.get("watch") == "true":
            train["status"] = {"phase": "Completed"}
            return Reply(parts=[event("ADDED", train)])
        listing = request.path.endswith("/runs") and train["status"]["phase"] == "Completed"
        return refusals.pop() if listing and refusals else None

    result = run_command(cli, "watch", "train", bodies=bodies, override=override)
    assert (result.code, refusals) == (0, [])
    assert "Pending" in result.out.splitlines()[0]
    assert "Completed" in result.out.splitlines()[-1]
    assert result.err.count("retrying until it answers") == 1


def test_verify_reads_reservations_of_the_cluster(cli: CliRunner) -> None:
    result = run_command(cli, "explain", "train", "--verify")
    assert (result.code, "has not been part of an activation or a lottery" in result.err) == (3, True), result
    result = run_command(cli, "verify", "train-1")
    assert (result.code, "there is no Reservation train-1" in result.err) == (3, True), result
