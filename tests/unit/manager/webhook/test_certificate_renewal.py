"""The Secret and the bundles, against a server on which others write too."""

import asyncio
from base64 import b64decode
from io import StringIO

import pytest

from jobtree.kube.http.api_errors import StatusError
from jobtree.kube.http.api_requests import Request
from jobtree.kube.http.async_client import AsyncClient
from jobtree.kube.write.object_writer import Writer
from jobtree.kube.write.write_gate import Gate
from jobtree.manager.log import Log
from jobtree.manager.settings import ManagerSettings
from jobtree.manager.webhook.certificate_renewal import CertificateRenewal, certificate_names
from jobtree.manager.webhook.certificate_rotation import decode_secret, encode_secret, new_certificates
from jobtree.manager.webhook.certificates import CertificateSchedule, CertificateSet
from tests.unit.manager.webhook.server import FakeServer

SECRETS = "/api/v1/namespaces/jobtree-system/secrets"
SECRET = f"{SECRETS}/jobtree-webhook-cert"
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
VALIDATING = f"{REGISTRATION}/validatingwebhookconfigurations/jobtree-webhook"
MUTATING = f"{REGISTRATION}/mutatingwebhookconfigurations/jobtree-webhook"
METADATA = {"name": "jobtree-webhook-cert", "namespace": "jobtree-system"}
NAMES = certificate_names("jobtree-system", "")
LIFE = 1200


class Replica:
    """One manager's share: whether it leads, what it holds, what it said."""

    def __init__(self, server: FakeServer, *, leads: bool = True) -> None:
        self.now = 1_800_000_000.0
        self._said = StringIO()
        settings = ManagerSettings(webhook_validity_seconds=LIFE)
        self.renewal = CertificateRenewal(AsyncClient(server), settings, Log(self._said), lambda: self.now)
        self._writer = Writer(server, Gate()) if leads else None

    def look(self, after: float = 0) -> CertificateSet | None:
        self.now += after
        asyncio.run(self.renewal.check(self._writer))
        return self.renewal.papers

    @property
    def said(self) -> str:
        return self._said.getvalue()


@pytest.fixture
def server() -> FakeServer:
    made = FakeServer()
    for path in (VALIDATING, MUTATING):
        webhooks = [{"name": "one", "clientConfig": {"url": "x"}}, {"name": "two", "clientConfig": {}}]
        made.put_there(path, {"metadata": {"name": "jobtree-webhook"}, "webhooks": webhooks})
    return made


def trusted(server: FakeServer) -> set[str]:
    found = [one for path in (VALIDATING, MUTATING) for one in server.objects[path]["webhooks"]]
    return {b64decode(one["clientConfig"].get("caBundle", "")).decode() for one in found}


def test_it_is_made_on_first_use_and_trusted(server: FakeServer) -> None:
    papers = Replica(server).look()
    assert papers is not None
    assert decode_secret(server.objects[SECRET]["data"], NAMES, 1_800_000_000)[0] == papers
    assert trusted(server) == {papers.bundle}
    assert server.objects[VALIDATING]["webhooks"][0]["clientConfig"]["url"] == "x", "the rest stays"
    written_before = list(server.writes)
    Replica(server).look()
    assert server.writes == written_before, "nothing is written where all is well"


def test_of_two_that_make_it_the_first_is_right(server: FakeServer) -> None:
    others = new_certificates(NAMES, 1_800_000_000, CertificateSchedule(LIFE))

    def be_faster(request: Request) -> None:
        if request.target == SECRETS and SECRET not in server.objects:
            server.put_there(SECRET, {"metadata": METADATA, "data": encode_secret(others)})

    server.before_write = be_faster
    assert Replica(server).look() == others
    assert trusted(server) == {others.bundle}


def test_of_two_that_renew_it_the_first_is_right(server: FakeServer) -> None:
    replica, other = Replica(server), Replica(server)
    replica.look()
    other.now += 800

    def be_faster(request: Request) -> None:
        if request.method == "PUT":
            server.before_write = lambda _: None
            renewed = new_certificates(NAMES, other.now, CertificateSchedule(LIFE))
            server.put_there(SECRET, {**server.objects[SECRET], "data": encode_secret(renewed)})

    server.before_write = be_faster
    papers = replica.look(800)
    assert papers is not None
    assert papers == other.look()
    assert trusted(server) == {papers.bundle}


def test_a_standby_reads_and_writes_nothing(server: FakeServer) -> None:
    standby = Replica(server, leads=False)
    assert standby.look() is None
    assert server.writes == []
    papers = Replica(server).look()
    assert standby.look() == papers
    server.put_there(SECRET, {"metadata": METADATA, "data": {}})
    assert standby.look() == papers, "what it has is better than nothing"


def test_the_next_one_is_shown_when_it_was_published_long_enough(server: FakeServer) -> None:
    replica = Replica(server)
    first = replica.look()
    made = replica.look(800)
    assert first is not None
    assert made is not None
    assert (made.shown, made.next is None) == (first.shown, False)
    assert trusted(server) == {made.bundle}
    assert replica.look(59) == made
    assert replica.look(1) == CertificateSet(made.next or first.shown, made.trusted)
    fresh_leader = Replica(server)
    fresh_leader.now = replica.now
    assert fresh_leader.look() == replica.renewal.papers


def test_a_new_leader_waits_for_itself(server: FakeServer) -> None:
    replica = Replica(server)
    replica.look()
    made = replica.look(800)
    successor = Replica(server)
    successor.now = replica.now + 300
    assert successor.look() == made, "since when it is published, it does not know"
    promoted = successor.look(60)
    assert promoted is not None
    assert made is not None
    assert promoted.shown == made.next


@pytest.mark.parametrize("data", [None, {}, {"tls.crt": "garbage"}], ids=["null", "empty", "garbage"])
def test_what_cannot_be_used_is_replaced_and_told(server: FakeServer, data: dict[str, str] | None) -> None:
    server.put_there(SECRET, {"metadata": METADATA, "data": data})
    replica = Replica(server)
    papers = replica.look()
    assert papers is not None
    assert "a new one is made" in replica.said
    assert trusted(server) == {papers.bundle}


def test_one_that_expired_is_replaced_and_told(server: FakeServer) -> None:
    replica = Replica(server)
    first = replica.look()
    second = replica.look(LIFE)
    assert first is not None
    assert second is not None
    assert second.shown != first.shown
    assert "it expired at" in replica.said


def test_an_emptied_bundle_is_filled_again(server: FakeServer) -> None:
    replica = Replica(server)
    papers = replica.look()
    webhooks = [{**one, "clientConfig": {}} for one in server.objects[MUTATING]["webhooks"]]
    server.put_there(MUTATING, {**server.objects[MUTATING], "webhooks": webhooks})
    replica.look()
    assert papers is not None
    assert trusted(server) == {papers.bundle}


def test_a_refusal_is_passed_on(server: FakeServer) -> None:
    def refuse(_: Request) -> None:
        raise StatusError(403, "Forbidden", "secrets is forbidden")

    server.before_write = refuse
    with pytest.raises(StatusError, match="forbidden"):
        Replica(server).look()


def test_further_names_are_those_of_the_settings() -> None:
    assert certificate_names("ns", " 10.0.0.1,hook.example.com, ")[2:] == ("10.0.0.1", "hook.example.com")
