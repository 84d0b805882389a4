"""The webhook's certificate is created, renewed without an interruption, and replaced when lost or broken."""

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
from tests.live.admission.webhook_cluster import (
    CERTIFICATE_SECRET,
    CONFIGURATIONS,
    WebhookEndpoint,
    await_webhook,
    ca_bundles,
    certificate_secret,
    webhook_answers,
)
from tests.live.cluster.control_plane import ControlPlane
from tests.live.cluster.server_process import wait_until
from tests.live.manager.installation import BASE, install
from tests.live.manager.manager_process import Manager

SHORT_VALIDITY = (
    30  # seconds of validity: renewed after 20, which leaves a busy machine time to serve the next one
)
LONG_VALIDITY = 120  # seconds of validity: too long to be renewed in a test


class CertificateCluster:
    """A cluster with the webhook's configurations, for managers with certificates of any validity."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.endpoint = WebhookEndpoint()
        self._kubeconfig = install(plane)
        self.endpoint.apply(plane, BASE)

    def start_manager(self, seconds: int) -> Manager:
        return Manager(
            self.plane, self._kubeconfig, *self.endpoint.flags, f"--webhook-validity-seconds={seconds}"
        )

    def served_certificate(self) -> str:
        """Returns the served certificate. Raises SSLError if a configuration does not trust it.

        The manager writes the configurations one after the other, so their bundles may differ for a moment.
        """
        return [self._certificate_for(bundle) for bundle in ca_bundles(self.plane)][-1]

    def trusted_certificate(self) -> str:
        """Returns the served certificate, or an empty text if a configuration does not trust it."""
        with suppress(ssl.SSLError):
            return self.served_certificate()
        return ""

    def _certificate_for(self, bundle: str) -> str:
        host, _, port = self.endpoint.address.partition(":")
        context = ssl.create_default_context(cadata=bundle)
        with (
            create_connection((host, int(port)), 30) as plain,
            context.wrap_socket(plain, server_hostname=host) as wrapped,
        ):
            certificate = wrapped.getpeercert(binary_form=True)
            assert certificate is not None
            return ssl.DER_cert_to_PEM_cert(certificate)


@pytest.fixture(scope="module")
def certificate_cluster() -> Iterator[CertificateCluster]:
    with ControlPlane() as plane:
        yield CertificateCluster(plane)


def test_certificate_is_renewed_without_a_failed_request(certificate_cluster: CertificateCluster) -> None:
    plane = certificate_cluster.plane
    assert not webhook_answers(plane), "the webhook answers without a manager"
    with certificate_cluster.start_manager(SHORT_VALIDITY) as manager:
        await_webhook(plane)
        wait_until(
            lambda: certificate_cluster.trusted_certificate() != "",
            "every configuration trusts the certificate",
        )
        failed: list[int] = []
        stopping = threading.Event()

        def send_requests() -> None:
            requests = 0
            while not stopping.is_set():
                requests += 1
                if not webhook_answers(plane):
                    failed.append(requests)

        sender = threading.Thread(target=send_requests)
        sender.start()
        certificates: set[str] = set()

        def renewed() -> bool:
            certificates.add(certificate_cluster.served_certificate())
            return len(certificates) >= 3

        try:
            wait_until(renewed, "the certificate was renewed twice", 120)
        finally:
            stopping.set()
            sender.join()
        assert failed == []
        assert manager.has_logged("the next certificate is made and published")
        for bundle in ca_bundles(plane):
            assert bundle.count("BEGIN CERTIFICATE") <= 3, "an expired certificate is still trusted"


def test_expired_certificate_is_replaced_when_the_manager_starts(
    certificate_cluster: CertificateCluster,
) -> None:
    names = ("jobtree-webhook.jobtree-system.svc", "127.0.0.1")
    expired = encode_secret(
        new_certificates(names, time.time() - 2 * LONG_VALIDITY, CertificateSchedule(LONG_VALIDITY))
    )
    assert certificate_cluster.plane.rest.merge(CERTIFICATE_SECRET, {"data": expired}).accepted
    with certificate_cluster.start_manager(LONG_VALIDITY) as manager:
        wait_until(lambda: manager.has_logged("a new one is made"), "the manager notices it")
        await_webhook(certificate_cluster.plane)
    assert manager.has_logged("it expired at")
    assert certificate_secret(certificate_cluster.plane)["tls.crt"] != expired["tls.crt"]


def test_lost_or_broken_certificate_is_replaced(certificate_cluster: CertificateCluster) -> None:
    plane = certificate_cluster.plane
    with certificate_cluster.start_manager(LONG_VALIDITY) as manager:
        await_webhook(plane)
        wait_until(
            lambda: certificate_cluster.trusted_certificate() != "",
            "every configuration trusts the certificate",
        )
        first = certificate_cluster.served_certificate()
        assert plane.rest.delete(CERTIFICATE_SECRET).accepted
        wait_until(lambda: "tls.crt" in certificate_secret(plane), "the Secret exists again")
        wait_until(
            lambda: certificate_cluster.trusted_certificate() not in ("", first),
            "every configuration trusts another certificate",
        )
        garbage = b64encode(b"\x00garbage").decode()
        assert plane.rest.merge(
            CERTIFICATE_SECRET, {"data": {"tls.crt": garbage, "ca.crt": garbage}}
        ).accepted
        wait_until(
            lambda: manager.has_logged("it holds no certificate with its key"), "the manager notices it"
        )
        wait_until(lambda: certificate_secret(plane)["tls.crt"] != garbage, "the Secret is replaced")
        wait_until(lambda: webhook_answers(plane), "the webhook answers")


def test_emptied_ca_bundles_are_restored(certificate_cluster: CertificateCluster) -> None:
    plane = certificate_cluster.plane
    with certificate_cluster.start_manager(LONG_VALIDITY):
        await_webhook(plane)
        wait_until(lambda: len(ca_bundles(plane)) == 1, "all configurations have the same bundle")
        (bundle,) = ca_bundles(plane)
        for path in CONFIGURATIONS[:2]:
            webhooks = plane.rest.get(path).body["webhooks"]
            for webhook in webhooks:
                del webhook["clientConfig"]["caBundle"]
            assert plane.rest.merge(path, {"webhooks": webhooks}).accepted
        wait_until(lambda: ca_bundles(plane) == {bundle}, "both configurations have the bundle again")
        await_webhook(plane)


def test_two_managers_share_one_certificate_when_they_start_together(
    certificate_cluster: CertificateCluster,
) -> None:
    plane, second_endpoint = certificate_cluster.plane, WebhookEndpoint()
    assert plane.rest.delete(CERTIFICATE_SECRET).accepted
    with (
        certificate_cluster.start_manager(LONG_VALIDITY) as first,
        Manager(plane, plane.directory / "manager.kubeconfig", *second_endpoint.flags) as second,
    ):
        for manager in (first, second):
            wait_until(lambda: manager.has_logged("the webhook is served"), "both managers serve the webhook")  # noqa: B023
        await_webhook(plane)
        wait_until(
            lambda: certificate_cluster.trusted_certificate() != "",
            "every configuration trusts the certificate",
        )
        certificate = certificate_cluster.served_certificate()
        certificate_cluster.endpoint, first_endpoint = second_endpoint, certificate_cluster.endpoint
        try:
            assert certificate_cluster.served_certificate() == certificate
        finally:
            certificate_cluster.endpoint = first_endpoint
