"""Renewal of the webhook's Secret and CA bundles, on a server to which others write too."""

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
from tests.unit.manager.webhook.fake_server import FakeServer

SECRETS = "/api/v1/namespaces/jobtree-system/secrets"
SECRET = f"{SECRETS}/jobtree-webhook-cert"
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
VALIDATING = f"{REGISTRATION}/validatingwebhookconfigurations/jobtree-webhook"
MUTATING = f"{REGISTRATION}/mutatingwebhookconfigurations/jobtree-webhook"
METADATA = {"name": "jobtree-webhook-cert", "namespace": "jobtree-system"}
NAMES = certificate_names("jobtree-system", "")
VALID_SECONDS = 1200


class Replica:
    """One replica of the manager, which leads or not."""

    def __init__(self, server: FakeServer, *, leads: bool = True) -> None:
        self.now = 1_800_000_000.0
        self._log = StringIO()
        settings = ManagerSettings(webhook_validity_seconds=VALID_SECONDS)
        self.renewal = CertificateRenewal(AsyncClient(server), settings, Log(self._log), lambda: self.now)
        self._writer = Writer(server, Gate()) if leads else None

    def check(self, after: float = 0) -> CertificateSet | None:
        """Checks the Secret after so many seconds; returns the certificates of this replica."""
        self.now += after
        asyncio.run(self.renewal.check(self._writer))
        return self.renewal.certificates

    @property
    def logged(self) -> str:
        return self._log.getvalue()


@pytest.fixture
def server() -> FakeServer:
    server = FakeServer()
    for path in (VALIDATING, MUTATING):
        webhooks = [{"name": "one", "clientConfig": {"url": "x"}}, {"name": "two", "clientConfig": {}}]
        server.put(path, {"metadata": {"name": "jobtree-webhook"}, "webhooks": webhooks})
    return server


def bundles(server: FakeServer) -> set[str]:
    """Returns the CA bundles of all webhooks."""
    webhooks = [webhook for path in (VALIDATING, MUTATING) for webhook in server.objects[path]["webhooks"]]
    return {b64decode(webhook["clientConfig"].get("caBundle", "")).decode() for webhook in webhooks}


def test_certificate_is_created_on_first_use_and_trusted(server: FakeServer) -> None:
    certificates = Replica(server).check()
    assert certificates is not None
    assert decode_secret(server.objects[SECRET]["data"], NAMES, 1_800_000_000)[0] == certificates
    assert bundles(server) == {certificates.bundle}
    assert server.objects[VALIDATING]["webhooks"][0]["clientConfig"]["url"] == "x", "other fields stay"
    written_before = list(server.writes)
    Replica(server).check()
    assert server.writes == written_before, "nothing has to change"


def test_first_of_two_writers_that_create_the_secret_wins(server: FakeServer) -> None:
    earlier = new_certificates(NAMES, 1_800_000_000, CertificateSchedule(VALID_SECONDS))

    def write_first(request: Request) -> None:
        if request.target == SECRETS and SECRET not in server.objects:
            server.put(SECRET, {"metadata": METADATA, "data": encode_secret(earlier)})

    server.before_write = write_first
    assert Replica(server).check() == earlier
    assert bundles(server) == {earlier.bundle}


def test_first_of_two_writers_that_renew_the_secret_wins(server: FakeServer) -> None:
    replica, other = Replica(server), Replica(server)
    replica.check()
    other.now += 800

    def write_first(request: Request) -> None:
        if request.method == "PUT":
            server.before_write = lambda _: None
            renewed = new_certificates(NAMES, other.now, CertificateSchedule(VALID_SECONDS))
            server.put(SECRET, {**server.objects[SECRET], "data": encode_secret(renewed)})

    server.before_write = write_first
    certificates = replica.check(800)
    assert certificates is not None
    assert certificates == other.check()
    assert bundles(server) == {certificates.bundle}


def test_standby_reads_the_secret_and_writes_nothing(server: FakeServer) -> None:
    standby = Replica(server, leads=False)
    assert standby.check() is None
    assert server.writes == []
    certificates = Replica(server).check()
    assert standby.check() == certificates
    server.put(SECRET, {"metadata": METADATA, "data": {}})
    assert standby.check() == certificates, "it keeps its certificates if the Secret is broken"


def test_next_certificate_is_shown_when_it_was_published_long_enough(server: FakeServer) -> None:
    replica = Replica(server)
    first = replica.check()
    made = replica.check(800)
    assert first is not None
    assert made is not None
    assert (made.shown, made.next is None) == (first.shown, False)
    assert bundles(server) == {made.bundle}
    assert replica.check(59) == made
    assert replica.check(1) == CertificateSet(made.next or first.shown, made.trusted)
    fresh_leader = Replica(server)
    fresh_leader.now = replica.now
    assert fresh_leader.check() == replica.renewal.certificates


def test_new_leader_waits_for_the_whole_trust_delay(server: FakeServer) -> None:
    replica = Replica(server)
    replica.check()
    made = replica.check(800)
    successor = Replica(server)
    successor.now = replica.now + 300
    assert successor.check() == made, "it does not know since when the bundle is published"
    promoted = successor.check(60)
    assert promoted is not None
    assert made is not None
    assert promoted.shown == made.next


@pytest.mark.parametrize("data", [None, {}, {"tls.crt": "garbage"}], ids=["null", "empty", "garbage"])
def test_unusable_certificate_is_replaced_and_logged(server: FakeServer, data: dict[str, str] | None) -> None:
    server.put(SECRET, {"metadata": METADATA, "data": data})
    replica = Replica(server)
    certificates = replica.check()
    assert certificates is not None
    assert "a new one is made" in replica.logged
    assert bundles(server) == {certificates.bundle}


def test_expired_certificate_is_replaced_and_logged(server: FakeServer) -> None:
    replica = Replica(server)
    first = replica.check()
    second = replica.check(VALID_SECONDS)
    assert first is not None
    assert second is not None
    assert second.shown != first.shown
    assert "it expired at" in replica.logged


def test_emptied_bundle_is_written_again(server: FakeServer) -> None:
    replica = Replica(server)
    certificates = replica.check()
    webhooks = [{**webhook, "clientConfig": {}} for webhook in server.objects[MUTATING]["webhooks"]]
    server.put(MUTATING, {**server.objects[MUTATING], "webhooks": webhooks})
    replica.check()
    assert certificates is not None
    assert bundles(server) == {certificates.bundle}


def test_refused_write_raises(server: FakeServer) -> None:
    def refuse(_: Request) -> None:
        raise StatusError(403, "Forbidden", "secrets is forbidden")

    server.before_write = refuse
    with pytest.raises(StatusError, match="forbidden"):
        Replica(server).check()


def test_certificate_has_the_names_of_the_settings() -> None:
    assert certificate_names("ns", " 10.0.0.1,hook.example.com, ")[2:] == ("10.0.0.1", "hook.example.com")
