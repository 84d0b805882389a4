"""Archived leases of a live cluster: read through the API server with the user's own rights, or told why."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobtree.archive.day_file import encode_day
from jobtree.manager.process.archive_endpoint import STANDBY
from tests.unit.archive.test_archive_directory import DAY_1, lease
from tests.unit.cli.desk import Body, Desk, budget, envelope, node
from tests.unit.cli.fakecluster import Special, cluster, served
from tests.unit.kube.server import Asked, Reply, status

PROXY = "/api/v1/namespaces/jobtree-system/services/jobtree-controller-manager:http/proxy/archive/"
FILE = encode_day([lease(1), lease(2)])


def carrying() -> Body:
    body = served(budget("lab", envelope(16)))
    use = {"name": "own", "flavor": "H100-80GB", "gpuSeconds": {"owned": "21600"}}
    body["status"] = {"carried": {"envelopes": [use]}}
    return body


def manager(*answers: Reply) -> Special:
    """Answers the proxied requests, one after another, then with the archive."""
    left = list(answers)

    def answer(asked: Asked) -> Reply | None:
        if not asked.path.startswith(PROXY):
            return None
        if left:
            return left.pop(0)
        name = asked.path.removeprefix(PROXY)
        return Reply(parts=[FILE if name == DAY_1 else json.dumps([DAY_1]).encode()])

    return answer


def leases(desk: Desk, tmp_path: Path, special: Special, *bodies: Body) -> Iterator[str]:
    with cluster(tmp_path, served(node("a01")), *bodies, special=special):
        answer = desk.bare(
            "--kubeconfig", str(tmp_path / "config"), "leases", "--since", "2026-01-01", "-o", "name"
        )
        yield from (str(answer.code), answer.out, answer.err)


def test_the_managers_archive_is_read_through_the_api_server(desk: Desk, tmp_path: Path) -> None:
    code, out, err = leases(desk, tmp_path, manager(), carrying())
    assert (code, err) == ("0", "")
    assert out.split() == [f"gpulease.rq.davidlangworthy.io/train-{number}" for number in (1, 2)]


def test_a_standby_that_answers_is_asked_again(desk: Desk, tmp_path: Path) -> None:
    standby = Reply(503, parts=[STANDBY.encode()])
    code, out, _ = leases(desk, tmp_path, manager(*[standby] * 5), carrying())
    assert (code, len(out.split())) == ("0", 2)


@pytest.mark.parametrize(
    ("refusal", "says"),
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
def test_what_cannot_be_read_is_told_and_the_rest_is_shown(
    desk: Desk, tmp_path: Path, refusal: Body, says: str
) -> None:
    refused = Reply(refusal["code"], refusal)
    recent = served(lease(7))
    code, out, err = leases(desk, tmp_path, manager(refused), carrying(), recent)
    assert (code, out.split()) == ("1", ["gpulease.rq.davidlangworthy.io/train-7"])
    assert says in err
    assert "archived leases are missing" in err


def test_where_nothing_is_archived_nobody_needs_a_right_to_it(desk: Desk, tmp_path: Path) -> None:
    refused = Reply(403, status(403, "Forbidden", "no"))
    code, out, err = leases(
        desk, tmp_path, manager(*[refused] * 99), served(budget("lab", envelope(16))), served(lease(7))
    )
    assert (code, err) == ("0", "")
    assert out.split() == ["gpulease.rq.davidlangworthy.io/train-7"]
