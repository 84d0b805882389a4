"""Doctor says what of an installation does not work, and what to do."""

import time
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobtree import __version__
from jobtree.cli.tasks.doctor_checks import BAD, GOOD, certificate_finding
from jobtree.manager.webhook.certificates import issue
from tests.unit.cli.cli_runner import CliRunner, CommandResult
from tests.unit.cli.fake_cluster import as_served, fake_cluster
from tests.unit.cli.manifests import Body, budget, envelope, node, nodes
from tests.unit.kube.server import ReceivedRequest, Reply, refusal

AUTHORITY = issue(["webhook"], time.time(), 86_400.0).certificate.encode()
KINDS = ("budgets", "runs", "reservations", "gpuleases")


def healthy(request: ReceivedRequest) -> Reply | None:
    """Answers as the server of a cluster does on which all is well."""
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    image = f"localhost/jobtree:{__version__}"
    answers: dict[str, Any] = {
        "/version": {"major": "1", "minor": "36", "gitVersion": "v1.36.3"},
        "/apis/rq.davidlangworthy.io/v1": {"resources": [{"name": name} for name in KINDS]},
        "deployments/jobtree-controller-manager": {
            "spec": {"replicas": 2, "template": {"spec": {"containers": [{"image": image}]}}},
            "status": {"readyReplicas": 2},
        },
        "leases/jobtree-controller-manager": {"spec": {"renewTime": now}},
        "validatingwebhookconfigurations/jobtree-webhook": {
            "webhooks": [{"clientConfig": {"caBundle": b64encode(AUTHORITY).decode()}}]
        },
        "configmaps/jobtree-policy": {
            "data": {"policy.yaml": "defaultTemplate: {spec: {containers: [{name: a, image: b}]}}"}
        },
        "selfsubjectaccessreviews": {"status": {"allowed": True}},
    }
    found = [document for path, document in answers.items() if request.path.endswith(path)]
    return Reply(document=found[0]) if found else None


def doctor(cli: CliRunner, *changes: tuple[str, Reply], bodies: list[Body] | None = None) -> CommandResult:
    """Runs doctor on a healthy cluster, but for the paths that are answered in another way."""

    def override(request: ReceivedRequest) -> Reply | None:
        other = [reply for path, reply in changes if request.path.endswith(path)]
        return other[0] if other else healthy(request)

    served = [as_served(body) for body in (bodies or [*nodes(2), budget("lab", envelope(8))])]
    with fake_cluster(cli.directory, *served, override=override):
        return cli.without_state("--kubeconfig", str(cli.directory / "config"), "doctor")


def test_a_healthy_installation_needs_nothing(cli: CliRunner) -> None:
    answer = doctor(cli)
    assert answer.code == 0, answer
    assert [line[:2] for line in answer.out.splitlines()] == ["ok"] * len(answer.out.splitlines())
    for subject in (
        "server",
        "kinds",
        "manager",
        "clock",
        "webhook",
        "certificate",
        "policy",
        "rights",
        "labels",
    ):
        assert f"ok  {subject}" in answer.out


@pytest.mark.parametrize(
    ("path", "reply", "says", "advice"),
    [
        ("/version", Reply(document={"major": "1", "minor": "26+"}), "!!  server", "1.27"),
        ("/apis/rq.davidlangworthy.io/v1", refusal(404, "NotFound"), "does not know Jobtree", "helm install"),
        (
            "/apis/rq.davidlangworthy.io/v1",
            Reply(document={"resources": []}),
            "does not know budgets",
            "CRDs",
        ),
        (
            "deployments/jobtree-controller-manager",
            Reply(document={"spec": {"template": {"spec": {"containers": [{}]}}}}),
            "0 of 1 managers are ready",
            "logs",
        ),
        (
            "leases/jobtree-controller-manager",
            Reply(document={"spec": {"renewTime": "2020-01-01T00:00:00.000000Z"}}),
            "!!  clock",
            "time service",
        ),
        (
            "validatingwebhookconfigurations/jobtree-webhook",
            Reply(document={"webhooks": [{"clientConfig": {}}]}),
            "no certificate authority",
            "logs",
        ),
        (
            "configmaps/jobtree-policy",
            Reply(document={"data": {"policy.yaml": "maxNotice: soon"}}),
            "maxNotice",
            "edit configmap",
        ),
        ("configmaps/jobtree-policy", Reply(document={"data": {}}), "no defaultTemplate", "spec.template"),
        (
            "selfsubjectaccessreviews",
            Reply(document={"status": {"allowed": False}}),
            "you may not submit Runs in namespace default",
            "jobtree-researcher",
        ),
    ],
)
def test_what_does_not_work_is_told_with_what_to_do(
    cli: CliRunner, path: str, reply: Reply, says: str, advice: str
) -> None:
    answer = doctor(cli, (path, reply))
    assert answer.code == 1, answer
    assert says in answer.out
    assert advice in answer.out.partition(says)[2]


def test_what_may_not_be_read_is_no_fault(cli: CliRunner) -> None:
    answer = doctor(cli, ("deployments/jobtree-controller-manager", refusal(403, "Forbidden")))
    assert (answer.code, "?   manager" in answer.out) == (0, True), answer


def test_nodes_and_budgets_are_checked_in_a_state_file(cli: CliRunner) -> None:
    assert cli.runs("doctor").code == 0
    odd = node("b01", flavor="h100-80gb")
    cli.write_cluster(*nodes(2), odd, budget("lab", envelope(8, flavor="B200")))
    answer = cli.runs("doctor")
    assert answer.code == 1
    assert "1 label missing or wrong" in answer.out
    assert "no node has the flavor of lab/own (B200)" in answer.out
    cli.write_cluster()
    assert "none of 0 nodes reports GPUs" in cli.runs("doctor").out


def test_expired_certificate_is_told() -> None:
    assert certificate_finding(AUTHORITY, time.time()).mark == GOOD
    later = datetime.now(UTC) + timedelta(days=365 * 30)
    assert certificate_finding(AUTHORITY, later.timestamp()).mark == BAD
