"""The webhook in the process of the manager: when it serves, and why it is not ready."""

import asyncio
import socket
from base64 import b64encode
from io import StringIO

import pytest

from jobtree.kube.http.api_resources import VALIDATING_WEBHOOKS
from jobtree.kube.write.object_writer import Writer
from jobtree.kube.write.write_gate import Gate
from jobtree.manager.cluster_view import NEEDED, ClusterView
from jobtree.manager.log import Log
from jobtree.manager.metrics import Metrics
from jobtree.manager.settings import ManagerSettings
from jobtree.manager.webhook.webhook_service import Webhook
from tests.unit.manager.webhook.fake_server import FakeServer


class WebhookUnderTest:
    """A webhook with a fake API server and a clock that the test sets."""

    def __init__(self, address: str) -> None:
        self.now = 1_800_000_000.0
        self.server = FakeServer()
        self.log = StringIO()
        self.view = ClusterView("jobtree-system", lambda *_: None, lambda: None)
        settings = ManagerSettings(webhook_address=address, webhook_validity_seconds=1200)
        self.webhook = Webhook(
            settings, self.server, self.view, Log(self.log), metrics=Metrics(), clock=lambda: self.now
        )

    def lead(self) -> None:
        self.webhook.lead(Writer(self.server, Gate()))

    def list_everything(self) -> None:
        stores = self.view.by_resource()
        for resource in NEEDED:
            stores[resource][0].finish()


@pytest.fixture
def address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def test_webhook_serves_when_it_has_a_certificate_and_all_kinds_are_listed(address: str) -> None:
    async def steps() -> None:
        service = WebhookUnderTest(address)
        await service.webhook._check()
        assert "it has no certificate" in service.webhook.unreadiness()[0], "no replica leads"
        service.lead()
        await service.webhook._check()
        assert service.webhook.unreadiness(), "some kinds are not listed"
        service.list_everything()
        await service.webhook._check()
        assert service.webhook.unreadiness() == []
        service.webhook._writer = None  # no replica renews the certificate
        service.now += 1200
        await service.webhook._check()
        assert "has expired" in service.webhook.unreadiness()[0]
        await service.webhook.stop()

    asyncio.run(steps())


def test_webhook_is_not_ready_before_the_api_server_trusts_its_certificate(address: str) -> None:
    """This happens after an installation that found the Secret of an earlier one."""

    async def steps() -> None:
        service = WebhookUnderTest(address)
        service.list_everything()
        service.lead()
        await service.webhook._check()
        service.webhook._writer = None  # another replica will lead
        configuration = VALIDATING_WEBHOOKS.path(name="jobtree-webhook")
        for bundle in ({}, {"caBundle": b64encode(b"another").decode()}):
            webhooks = [{"name": "w", "clientConfig": bundle}]
            service.server.put(configuration, {"metadata": {"name": "jobtree-webhook"}, "webhooks": webhooks})
            await service.webhook._check()
            (why,) = service.webhook.unreadiness()
            assert "the API server does not trust the webhook yet" in why
            assert "ValidatingWebhookConfiguration jobtree-webhook" in why
        service.lead()
        await service.webhook._check()
        assert service.webhook.unreadiness() == []
        service.webhook._writer = None
        await service.webhook._check()
        assert service.webhook.unreadiness() == []
        await service.webhook.stop()

    asyncio.run(steps())


def test_address_in_use_is_logged_once_and_tried_again(address: str) -> None:
    async def steps() -> None:
        service = WebhookUnderTest(address)
        service.lead()
        service.list_everything()
        host, _, port = address.partition(":")
        with socket.create_server((host, int(port))):
            await service.webhook._check()
            await service.webhook._check()
        assert service.log.getvalue().count("Address already in use") == 1
        assert "Address already in use" in service.webhook.unreadiness()[0]
        await service.webhook._check()
        assert service.webhook.unreadiness() == []
        await service.webhook.stop()

    asyncio.run(steps())
