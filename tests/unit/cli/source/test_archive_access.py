"""Archived leases of a live cluster are read through the API server, with the user's own permissions."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobtree.archive.day_file import encode_day
from jobtree.manager.process.archive_endpoint import STANDBY
from tests.unit.archive.test_archive_directory import DAY_1, lease
from tests.unit.cli.cli_runner import CliRunner
from tests.unit.cli.fake_cluster import Override, as_served, fake_cluster
from tests.unit.cli.manifests import Body, budget, envelope, node
from tests.unit.kube.server import ReceivedRequest, Reply, status

PROXY = "/api/v1/namespaces/jobtree-system/services/jobtree-controller-manager:http/proxy/archive/"
FILE = encode_day([lease(1), lease(2)])


def budget_with_carried_usage() -> Body:
    body = as_served(budget("lab", envelope(16)))
    usage = {"name": "own", "flavor": "H100-80GB", "gpuSeconds": {"owned": "21600"}}
    body["status"] = {"carried": {"envelopes": [usage]}}
    return body


def archive_proxy(*answers: Reply) -> Override:
    """Answers proxied requests with these replies in turn, then with the archive."""
    remaining = list(answers)

    def answer(request: ReceivedRequest) -> Reply | None:
        if not request.path.startswith(PROXY):
            return None
        if remaining:
            return remaining.pop(0)
        name = request.path.removeprefix(PROXY)
        return Reply(parts=[FILE if name == DAY_1 else json.dumps([DAY_1]).encode()])

    return answer


def leases(cli: CliRunner, tmp_path: Path, override: Override, *bodies: Body) -> Iterator[str]:
    with fake_cluster(tmp_path, as_served(node("a01")), *bodies, override=override):
        answer = cli.without_state(
            "--kubeconfig", str(tmp_path / "config"), "leases", "--since", "2026-01-01", "-o", "name"
        )
        yield from (str(answer.code), answer.out, answer.err)


def test_leases_reads_the_archive_through_the_api_server(cli: CliRunner, tmp_path: Path) -> None:
    code, out, err = leases(cli, tmp_path, archive_proxy(), budget_with_carried_usage())
    assert (code, err) == ("0", "")
    assert out.split() == [f"gpulease.rq.davidlangworthy.io/train-{number}" for number in (1, 2)]


def test_leases_retries_when_a_standby_answers(cli: CliRunner, tmp_path: Path) -> None:
    standby = Reply(503, parts=[STANDBY.encode()])
    code, out, _ = leases(cli, tmp_path, archive_proxy(*[standby] * 5), budget_with_carried_usage())
    assert (code, len(out.split())) == ("0", 2)


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        (
            status(403, "Forbidden", "services is forbidden: User cannot get resource services/proxy"),
            "bind you to the Role jobtree-archive-reader",
        ),
        (status(500, "InternalError", "the disk is gone"), "the disk is gone"),
        (status(503, "ServiceUnavailable", "no endpoints available"), "no endpoints available"),
        (status(404, "NotFound", "services not found"), "keeps no archive"),
    ],
)
def test_leases_shows_the_rest_and_exits_1_when_the_archive_cannot_be_read(
    cli: CliRunner, tmp_path: Path, refusal: Body, message: str
) -> None:
    refused = Reply(refusal["code"], refusal)
    recent = as_served(lease(7))
    code, out, err = leases(cli, tmp_path, archive_proxy(refused), budget_with_carried_usage(), recent)
    assert (code, out.split()) == ("1", ["gpulease.rq.davidlangworthy.io/train-7"])
    assert message in err
    assert "archived leases are missing" in err


def test_leases_does_not_read_the_archive_when_nothing_is_archived(cli: CliRunner, tmp_path: Path) -> None:
    refused = Reply(403, status(403, "Forbidden", "no"))
    code, out, err = leases(
        cli,
        tmp_path,
        archive_proxy(*[refused] * 99),
        as_served(budget("lab", envelope(16))),
        as_served(lease(7)),
    )
    assert (code, err) == ("0", "")
    assert out.split() == ["gpulease.rq.davidlangworthy.io/train-7"]
