"""The webhook's certificate: made, renewed without a break, and mended whatever happens to it."""

import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from socket import create_connection

import pytest

from jobtree.manager.webhook.certificate_rotation import encode_secret, new_certificates
from jobtree.manager.webhook.certificates import CertificateSchedule
from tests.live.control_plane import ControlPlane
from tests.live.hooking import CONFIGURATIONS, SECRET, Hook, await_webhook, bundles, is_answered, secret
from tests.live.managing import BASE, Manager, install
from tests.live.process import wait_until

SHORT = 30  # seconds of validity: the next one is made after 20, and a busy machine still shows it in time
LONG = 120  # renewed by none of these tests, yet looked at often


class Certified:
    """A cluster with the webhook's configurations, and managers with certificates of any life."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.hook = Hook()
        self._kubeconfig = install(plane)
        self.hook.apply(plane, BASE)

    def manager(self, seconds: int) -> Manager:
        return Manager(
            self.plane, self._kubeconfig, *self.hook.flags, f"--webhook-validity-seconds={seconds}"
        )

    def shown(self) -> str:
        """The certificate that is shown now, if each configuration trusts it.

        They are written one after the other, so for a moment their bundles may differ.
        """
        return [self._shown_to(bundle) for bundle in bundles(self.plane)][-1]

    def trusted(self) -> str:
        """The certificate that is shown now; nothing as long as some configuration does not trust it."""
        with suppress(ssl.SSLError):
            return self.shown()
        return ""

    def _shown_to(self, bundle: str) -> str:
        host, _, port = self.hook.address.partition(":")
        context = ssl.create_default_context(cadata=bundle)
        with (
            create_connection((host, int(port)), 30) as plain,
            context.wrap_socket(plain, server_hostname=host) as wrapped,
        ):
            certificate = wrapped.getpeercert(binary_form=True)
            assert certificate is not None
            return ssl.DER_cert_to_PEM_cert(certificate)


@pytest.fixture(scope="module")
def certified() -> Iterator[Certified]:
    with ControlPlane() as plane:
        yield Certified(plane)


def test_it_is_renewed_again_and_again_and_every_question_is_answered(certified: Certified) -> None:
    plane = certified.plane
    assert not is_answered(plane), "nobody answers before"
    with certified.manager(SHORT) as manager:
        await_webhook(plane)
        wait_until(lambda: certified.trusted() != "", "each configuration trusts it")
        unanswered: list[int] = []
        stopping = threading.Event()

        def ask() -> None:
            asked = 0
            while not stopping.is_set():
                asked += 1
                if not is_answered(plane):
                    unanswered.append(asked)

        asking = threading.Thread(target=ask)
        asking.start()
        seen: set[str] = set()

        def renewed() -> bool:
            seen.add(certified.shown())
            return len(seen) >= 3

        try:
            wait_until(renewed, "it was renewed twice", 120)
        finally:
            stopping.set()
            asking.join()
        assert unanswered == []
        assert manager.said("the next certificate is made and published")
        for bundle in bundles(plane):
            assert bundle.count("BEGIN CERTIFICATE") <= 3, "what has expired is trusted no more"


def test_one_that_expired_while_nobody_was_there_is_made_anew(certified: Certified) -> None:
    names = ("jobtree-webhook.jobtree-system.svc", "127.0.0.1")
    expired = encode_secret(new_certificates(names, time.time() - 2 * LONG, CertificateSchedule(LONG)))
    assert certified.plane.rest.merge(SECRET, {"data": expired}).accepted
    with certified.manager(LONG) as manager:
        wait_until(lambda: manager.said("a new one is made"), "it is noticed")
        await_webhook(certified.plane)
    assert manager.said("it expired at")
    assert secret(certified.plane)["tls.crt"] != expired["tls.crt"]


def test_whatever_happens_to_it_it_is_mended(certified: Certified) -> None:
    plane = certified.plane
    with certified.manager(LONG) as manager:
        await_webhook(plane)
        wait_until(lambda: certified.trusted() != "", "each configuration trusts it")
        first = certified.shown()
        assert plane.rest.delete(SECRET).accepted
        wait_until(lambda: "tls.crt" in secret(plane), "the Secret is made again")
        wait_until(lambda: certified.trusted() not in ("", first), "with another certificate, trusted by all")
        garbage = b64encode(b"\x00garbage").decode()
        assert plane.rest.merge(SECRET, {"data": {"tls.crt": garbage, "ca.crt": garbage}}).accepted
        wait_until(lambda: manager.said("it holds no certificate with its key"), "it is noticed")
        wait_until(lambda: secret(plane)["tls.crt"] != garbage, "it is mended")
        wait_until(lambda: is_answered(plane), "the webhook answers")


def test_emptied_bundles_are_filled_again(certified: Certified) -> None:
    plane = certified.plane
    with certified.manager(LONG):
        await_webhook(plane)
        wait_until(lambda: len(bundles(plane)) == 1, "all configurations trust the same")
        (bundle,) = bundles(plane)
        for path in CONFIGURATIONS[:2]:
            webhooks = plane.rest.get(path).body["webhooks"]
            for webhook in webhooks:
                del webhook["clientConfig"]["caBundle"]
            assert plane.rest.merge(path, {"webhooks": webhooks}).accepted
        wait_until(lambda: bundles(plane) == {bundle}, "both trust it again")
        await_webhook(plane)


def test_two_that_start_at_once_agree_on_one_certificate(certified: Certified) -> None:
    plane, other = certified.plane, Hook()
    assert plane.rest.delete(SECRET).accepted
    with (
        certified.manager(LONG) as one,
        Manager(plane, plane.directory / "manager.kubeconfig", *other.flags) as two,
    ):
        for manager in (one, two):
            wait_until(lambda: manager.said("the webhook is served"), "both serve")  # noqa: B023
        await_webhook(plane)
        wait_until(lambda: certified.trusted() != "", "each configuration trusts it")
        mine = certified.shown()
        certified.hook, kept = other, certified.hook
        try:
            assert certified.shown() == mine
        finally:
            certified.hook = kept
