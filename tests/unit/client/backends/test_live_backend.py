"""The library on a live cluster, played by a fake server: waits, refusals, outages and tokens that expire."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import jobtree
from jobtree.client.backends import live_backend
from tests.unit.cli.fake_cluster import Override, as_served, fake_cluster
from tests.unit.cli.manifests import FLAVOR, Body, budget, envelope, nodes, run
from tests.unit.kube.server import ReceivedRequest, Reply, event, refusal, status

pytestmark = pytest.mark.usefixtures("_no_pause")


@pytest.fixture
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_backend, "RETRY_SECONDS", 0)


def served(phase: str = "Pending") -> Body:
    body = as_served(run("train"))
    body["status"] = {"phase": phase, "observedGeneration": 1}
    return body


@contextmanager
def live(
    directory: Path, *bodies: Body, override: Override = lambda _: None
) -> Iterator[jobtree.ClusterClient]:
    with (
        fake_cluster(directory, *bodies, override=override),
        jobtree.cluster(kubeconfig=str(directory / "config")) as cluster,
    ):
        yield cluster


def on_watch(train: Body, *steps: Callable[[], Reply | None]) -> Override:
    """Takes the next step with each watch; the last one changes the Run to Running."""
    remaining = list(steps)

    def override(request: ReceivedRequest) -> Reply | None:
        if request.query.get("watch") != "true":
            return None
        if remaining:
            return remaining.pop(0)()
        train["status"]["phase"] = "Running"
        return Reply(parts=[event("MODIFIED", train)])

    return override


def test_wait_ends_with_the_change_that_the_watch_reports(tmp_path: Path) -> None:
    train = served()
    with live(tmp_path, train, override=on_watch(train)) as cluster:
        assert cluster.run("train").wait(timeout=60).status.phase == "Running"


def test_wait_survives_a_server_that_fails_for_a_while(tmp_path: Path) -> None:
    train = served()
    outages = (lambda: refusal(503, "ServiceUnavailable"), lambda: refusal(429, "TooManyRequests"))
    with live(tmp_path, train, override=on_watch(train, *outages)) as cluster:
        assert cluster.run("train").wait(timeout=60).status.phase == "Running"


def test_wait_raises_when_its_token_expires(tmp_path: Path) -> None:
    train = served()
    expired = lambda: refusal(401, "Unauthorized")  # noqa: E731  one of the steps
    with live(tmp_path, train, override=on_watch(train, expired)) as cluster:
        waiting = cluster.run("train")
        with pytest.raises(jobtree.CredentialsError, match="log in again") as refused:
            waiting.wait(timeout=60)
    assert (refused.value.code, refused.value.reason) == (401, "Unauthorized")


def test_wait_ends_at_its_timeout_and_when_it_is_stopped(tmp_path: Path) -> None:
    train = served()
    quiet = lambda request: Reply(parts=[]) if request.query.get("watch") else None  # noqa: E731
    stopped = threading.Event()
    stopped.set()
    with live(tmp_path, train, override=quiet) as cluster:
        with pytest.raises(jobtree.WaitTimeoutError, match="is Pending and not Running"):
            cluster.run("train").wait(timeout=0.1)
        with pytest.raises(jobtree.WaitTimeoutError):
            cluster.run("train").wait(stop=stopped)


def test_wait_raises_when_the_run_is_deleted_or_fails(tmp_path: Path) -> None:
    train = served()

    def failed() -> Reply | None:
        train["status"] |= {"phase": "Failed", "message": "PodFailed: exit code 1"}
        return Reply(parts=[event("MODIFIED", train)])

    with live(tmp_path, train, override=on_watch(train, failed)) as cluster:
        with pytest.raises(jobtree.RunEndedError, match="exit code 1") as ended:
            cluster.run("train").wait(timeout=60)
        assert ended.value.phase == "Failed"
        waiting = cluster.run("train")
        train["metadata"] |= {"uid": "another"}
        with pytest.raises(jobtree.RunEndedError, match="was deleted"):
            waiting.wait("Completed", timeout=60)


def test_cluster_that_is_not_there_raises_no_answer(tmp_path: Path) -> None:
    with live(tmp_path, served()) as cluster:
        train = cluster.run("train")
    for ask in (lambda: train.status, jobtree.cluster(kubeconfig=str(tmp_path / "config")).runs, train.plan):
        with pytest.raises(jobtree.NoAnswerError, match="the cluster does not answer") as silence:
            ask()
        assert silence.value.exit_code == 74


def test_spec_that_the_server_refuses_raises_with_its_causes(tmp_path: Path) -> None:
    causes = [{"reason": "FieldValueInvalid", "message": "is too small", "field": "spec.resources"}]

    def refuse(request: ReceivedRequest) -> Reply | None:
        if request.method != "POST":
            return None
        return Reply(422, status(422, "Invalid", "the Run is invalid", causes=causes))

    described = jobtree.Run("new", owner="org:lab", gpu_type=FLAVOR, gpus=8)
    with live(tmp_path, override=refuse), pytest.raises(jobtree.RefusedError) as refused:
        described.submit()
    assert refused.value.causes == (("spec.resources", "is too small"),)
    assert (refused.value.code, refused.value.reason, described.uid) == (422, "Invalid", "")


def test_missing_right_and_taken_name_are_errors_of_their_own(tmp_path: Path) -> None:
    answers = [
        Reply(403, status(403, "Forbidden", 'runs.x is forbidden: User "u" cannot create resource "runs"')),
        Reply(409, status(409, "AlreadyExists", 'runs.x "new" already exists')),
    ]
    described = jobtree.Run("new", owner="org:lab", gpu_type=FLAVOR, gpus=8)
    with live(tmp_path, override=lambda request: answers.pop(0) if request.method == "POST" else None):
        with pytest.raises(jobtree.ForbiddenError, match="jobtree-researcher"):
            described.submit()
        with pytest.raises(jobtree.ConflictError, match="already exists"):
            described.submit()


def test_status_of_an_older_or_newer_server_is_read(tmp_path: Path) -> None:
    train = served("Running")
    train["status"]["inventedTomorrow"] = {"a": 1}
    del train["status"]["observedGeneration"]
    with live(tmp_path, train) as cluster:
        assert cluster.run("train").status.phase == "Running"
        assert cluster.runs()[0].row()["phase"] == "Running"


def test_rows_and_plans_are_read_from_the_server(tmp_path: Path) -> None:
    bodies = [as_served(body) for body in (*nodes(2), budget("lab", envelope(8)), run("train"))]
    with live(tmp_path, *bodies) as cluster:
        assert [one.name for one in cluster.runs("org:lab")] == ["train"]
        assert [row.envelope for row in jobtree.budgets()] == ["own"]
        assert jobtree.reservations().to_dicts() == jobtree.leases().to_dicts() == []
        described = jobtree.Run("new", owner="org:lab", gpu_type=FLAVOR, gpus=8)
        (answer,) = described.plan().runs
        assert (answer.metadata.namespace, answer.status.answer) == ("default", "Waits")
        assert cluster.plan("train").runs[0].status.phase == "Pending"
        with pytest.raises(jobtree.NotFoundError) as missing:
            cluster.run("nobody")
        assert missing.value.name == "default/nobody"
