"""The command line against a server that says what a test wants: the ways in which a cluster can say no."""

from pathlib import Path

import pytest

from jobtree.cli.source.live_cluster import ALIVE, dangling_leases
from jobtree.cli.source.server_refusals import sentence
from jobtree.cli.tasks.live_writes import with_finalizer
from jobtree.kube.http.api_errors import StatusCause, StatusError
from jobtree.kube.installation import FINALIZER
from tests.unit.cli.desk import Answer, Body, Desk, budget, envelope, nodes, run
from tests.unit.cli.fakecluster import Special, cluster, served
from tests.unit.kube.server import Asked, Reply, event, refusal, status

BASE = "/apis/rq.davidlangworthy.io/v1"


def lab() -> list[Body]:
    return [served(body) for body in (*nodes(2), budget("lab", envelope(8)), run("train"))]


def asking(
    desk: Desk, *words: str, bodies: list[Body] | None = None, special: Special = lambda _: None
) -> Answer:
    with cluster(desk.directory, *(lab() if bodies is None else bodies), special=special):
        return desk.bare("--kubeconfig", str(desk.directory / "config"), *words)


def test_a_run_is_shown_as_it_was_written(desk: Desk) -> None:
    bodies = lab()
    bodies[-1]["status"] = {"phase": "Pending", "reason": "NoFreeSlots", "observedGeneration": 1}
    said = asking(desk, "state", bodies=bodies)
    assert (said.code, "default/train  org:lab  Pending" in said.out) == (0, True), said


def test_planning_happens_here_and_only_for_files(desk: Desk) -> None:
    said = asking(desk, "plan", "train")
    assert (said.code, "the manager has not planned this Run yet" in said.out) == (1, True), said
    said = asking(desk, "plan", "-f", desk.file("new.yaml", run("new")), bodies=lab()[:-1])
    assert (said.code, "default/new would start now" in said.out) == (0, True), said


def test_pods_are_listed_only_where_free_gpus_count(desk: Desk) -> None:
    with cluster(desk.directory, *lab()) as server:
        config = str(desk.directory / "config")
        desk.bare("--kubeconfig", config, "state")
        assert not [one for one in server.asked if one.path.endswith("/pods")]
        desk.bare("--kubeconfig", config, "topology")
        (pods,) = [one for one in server.asked if one.path.endswith("/pods")]
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
def test_a_refusal_says_what_to_do(desk: Desk, reply: Reply, code: int, hint: str) -> None:
    said = asking(desk, "state", special=lambda _: reply)
    assert (said.code, hint in said.err, "Traceback" in said.err) == (code, True, False), said


def test_sentences() -> None:
    invalid = StatusError(422, "Invalid", "is invalid", (StatusCause("", "must be at most 8", "spec.x"),))
    assert sentence(invalid) == "is invalid\n  spec.x: must be at most 8"
    gone = StatusError(404, "NotFound", 'namespaces "x" not found')
    assert "kubectl get namespaces" in sentence(gone)
    writing = StatusError(403, "Forbidden", 'User "x" cannot create resource "runs"')
    assert "jobtree-researcher" in sentence(writing)
    denied = StatusError(403, "Forbidden", "denied request: your owner may not be spent")
    assert sentence(denied) == "denied request: your owner may not be spent"
    unasked = StatusError(500, "InternalError", 'failed calling webhook "new.rq.davidlangworthy.io": refused')
    assert "Runs and Budgets cannot be created now" in sentence(unasked)
    others = StatusError(500, "InternalError", 'failed calling webhook "x.example.com": refused')
    assert sentence(others) == others.message


def test_a_name_that_is_elsewhere(desk: Desk) -> None:
    bodies = [*lab(), served(run("away", namespace="far"))]
    said = asking(desk, "cancel", "away", bodies=bodies, special=missing("away"))
    assert (said.code, "did you mean far/away?" in said.err) == (3, True), said
    said = asking(desk, "cancel", "nobody", bodies=bodies)
    assert (said.code, "kubectl runs state --all" in said.err) == (3, True), said


def missing(name: str) -> Special:
    def special(asked: Asked) -> Reply | None:
        gone = asked.path == f"{BASE}/namespaces/default/runs/{name}"
        return Reply(404, status(404, "NotFound", f'runs "{name}" not found')) if gone else None

    return special


def test_the_context_s_namespace_goes_first(desk: Desk) -> None:
    bodies = [*lab(), served(run("train", namespace="far"), "other")]
    assert (
        asking(desk, "plan", "train", "-o", "name", bodies=bodies).out == "run.rq.davidlangworthy.io/train\n"
    )


def test_leases_that_lost_their_run_while_it_was_listed_are_left_out(desk: Desk) -> None:
    body = {
        "kind": "Lease",
        "apiVersion": "rq.davidlangworthy.io/v1",
        "metadata": {"name": "gone-1"},
        "spec": {"runRef": {"namespace": "default", "name": "gone"}, "slots": ["a01#0-7"]},
    }
    known = lab()
    assert dangling_leases([*known, body]) == {id(body)}
    assert dangling_leases([*known, {**body, "status": {"end": "2026-01-05T09:00:00Z"}}]) == set()
    body["spec"] = {"runRef": {"namespace": "default", "name": "train"}, "slots": ["z99#0-7"]}
    assert dangling_leases([*known, body]) == {id(body)}, "its node is gone"
    assert asking(desk, "state", bodies=[*known, body]).code == 0


def test_submit_waits_for_the_manager_s_word(desk: Desk) -> None:
    told = served(run("new"))
    told["metadata"]["resourceVersion"] = "5"

    def special(asked: Asked) -> Reply | None:
        if asked.method == "POST":
            return Reply(201, told)
        if asked.query.get("watch") == "true":
            wrote = {"phase": "Running", "message": "Admitted: 8 GPUs", "observedGeneration": 1}
            lines = [event("MODIFIED", told), event("MODIFIED", {"kind": "Run", **told, "status": wrote})]
            return Reply(parts=lines)
        return None

    file = desk.file("new.yaml", run("new"))
    said = asking(desk, "submit", "-f", file, special=special)
    assert said.out == "default/new is Running: Admitted: 8 GPUs\n", said


def test_a_run_is_submitted_with_what_keeps_it_until_its_leases_are_ended() -> None:
    assert with_finalizer(run("one"))["metadata"]["finalizers"] == [FINALIZER]
    assert "finalizers" not in run("one")["metadata"], "what was read from a file stays as it was"
    mine = run("two")
    mine["metadata"]["finalizers"] = ["mine/own", FINALIZER]
    assert with_finalizer(mine)["metadata"]["finalizers"] == ["mine/own", FINALIZER]
    tree = {**run("tree"), "spec": {"owner": "org:lab", "stages": [{"name": "only"}]}}
    assert with_finalizer(tree) == tree, "a tree holds no leases"
    lab_budget = budget("lab", envelope(8))
    assert with_finalizer(lab_budget) == lab_budget


def test_submit_sends_it_so(desk: Desk) -> None:
    posted: list[Body] = []

    def special(asked: Asked) -> Reply | None:
        if asked.method != "POST":
            return None
        posted.append(asked.body)
        done = {"phase": "Running", "observedGeneration": 1}
        return Reply(201, {**served(asked.body), "status": done})

    asking(desk, "submit", "-f", desk.file("new.yaml", run("new")), special=special)
    assert [body["metadata"]["finalizers"] for body in posted] == [[FINALIZER]]


def test_several_objects_are_rehearsed_first(desk: Desk) -> None:
    posted: list[tuple[str, str]] = []

    def special(asked: Asked) -> Reply | None:
        if asked.method != "POST":
            return None
        posted.append((asked.body["metadata"]["name"], asked.query.get("dryRun", "")))
        return (
            Reply(409, status(409, "AlreadyExists", "taken"))
            if posted[-1][0] == "two"
            else Reply(201, asked.body)
        )

    said = asking(desk, "submit", "-f", desk.file("new.yaml", run("one"), run("two")), special=special)
    assert said.code == 4
    assert posted == [("one", "All"), ("two", "All")]


def test_completion_asks_the_cluster_and_is_silent_about_trouble(desk: Desk, tmp_path: Path) -> None:
    def completed(*words: str, special: Special = lambda _: None) -> list[str]:
        with cluster(desk.directory, *lab(), served(run("far-off", namespace="far")), special=special):
            config = str(tmp_path / "config")
            return desk.bare("__complete", "plan", "--kubeconfig", config, *words).out.splitlines()

    assert completed("") == ["train", ":4"]
    assert completed("far/") == ["far/far-off", ":4"]
    assert completed("", special=lambda _: refusal(403, "Forbidden")) == [":4"]
    assert desk.bare("__complete", "plan", "--kubeconfig", str(tmp_path / "none"), "").out == ":4\n"


def test_whoever_follows_a_run_waits_for_a_server_that_is_away(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listings fail twice between two changes; the Run ends well."""
    monkeypatch.setattr("jobtree.cli.tasks.run_watch.RETRY_SECONDS", 0)
    bodies = lab()
    train = bodies[-1]
    train["status"] = {"phase": "Pending"}
    trouble = [refusal(503, "ServiceUnavailable"), refusal(503, "ServiceUnavailable")]

    def special(asked: Asked) -> Reply | None:
        if asked.query.get("watch") == "true":
            train["status"] = {"phase": "Completed"}
            return Reply(parts=[event("ADDED", train)])
        listing = asked.path.endswith("/runs") and train["status"]["phase"] == "Completed"
        return trouble.pop() if listing and trouble else None

    said = asking(desk, "watch", "train", bodies=bodies, special=special)
    assert (said.code, trouble) == (0, [])
    assert "Pending" in said.out.splitlines()[0]
    assert "Completed" in said.out.splitlines()[-1]
    assert said.err.count("retrying until it answers") == 1


def test_proofs_are_looked_for_on_the_cluster(desk: Desk) -> None:
    said = asking(desk, "explain", "train", "--verify")
    assert (said.code, "has not been part of an activation or a lottery" in said.err) == (3, True), said
    said = asking(desk, "verify", "train-1")
    assert (said.code, "there is no Reservation train-1" in said.err) == (3, True), said
