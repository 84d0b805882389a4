"""The webhook as a part of the process: when it serves, and when it says that it does not."""

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
from jobtree.manager.settings import ManagerSettings
from jobtree.manager.webhook.webhook_service import Webhook
from tests.unit.manager.webhook.server import FakeServer


class Part:
    """A webhook with a server to talk to, and a clock that a test turns."""

    def __init__(self, address: str) -> None:
        self.now = 1_800_000_000.0
        self.server = FakeServer()
        self.log = StringIO()
        self.view = ClusterView("jobtree-system", lambda *_: None, lambda: None)
        settings = ManagerSettings(webhook_address=address, webhook_validity_seconds=1200)
        self.webhook = Webhook(settings, self.server, self.view, Log(self.log), lambda: self.now)

    def lead(self) -> None:
        self.webhook.lead(Writer(self.server, Gate()))

    def see_everything(self) -> None:
        stores = self.view.by_resource()
        for resource in NEEDED:
            stores[resource][0].finish()


@pytest.fixture
def address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def test_it_serves_when_it_has_a_certificate_and_has_seen_everything(address: str) -> None:
    async def story() -> None:
        part = Part(address)
        await part.webhook._check()
        assert "it has no certificate" in part.webhook.unreadiness()[0], "nobody leads"
        part.lead()
        await part.webhook._check()
        assert part.webhook.unreadiness(), "not all has been seen"
        part.see_everything()
        await part.webhook._check()
        assert part.webhook.unreadiness() == []
        part.webhook._writer = None  # nobody renews it
        part.now += 1200
        await part.webhook._check()
        assert "has expired" in part.webhook.unreadiness()[0]
        await part.webhook.stop()

    asyncio.run(story())


def test_it_is_not_ready_before_the_api_server_trusts_what_it_shows(address: str) -> None:
    """As after an installation that found the certificate of the one before."""

    async def story() -> None:
        part = Part(address)
        part.see_everything()
        part.lead()
        await part.webhook._check()
        part.webhook._writer = None  # the Secret is there; another one will lead
        configuration = VALIDATING_WEBHOOKS.path(name="jobtree-webhook")
        for bundle in ({}, {"caBundle": b64encode(b"another").decode()}):
            webhooks = [{"name": "w", "clientConfig": bundle}]
            part.server.put_there(
                configuration, {"metadata": {"name": "jobtree-webhook"}, "webhooks": webhooks}
            )
            await part.webhook._check()
            (why,) = part.webhook.unreadiness()
            assert "the API server does not trust the webhook yet" in why
            assert "ValidatingWebhookConfiguration jobtree-webhook" in why
        part.lead()
        await part.webhook._check()
        assert part.webhook.unreadiness() == []
        part.webhook._writer = None
        await part.webhook._check()
        assert part.webhook.unreadiness() == []
        await part.webhook.stop()

    asyncio.run(story())


def test_an_address_that_is_taken_is_told_once_and_tried_again(address: str) -> None:
    async def story() -> None:
        part = Part(address)
        part.lead()
        part.see_everything()
        host, _, port = address.partition(":")
        with socket.create_server((host, int(port))):
            await part.webhook._check()
            await part.webhook._check()
        assert part.log.getvalue().count("address already in use") == 1
        assert "address already in use" in part.webhook.unreadiness()[0]
        await part.webhook._check()
        assert part.webhook.unreadiness() == []
        await part.webhook.stop()

    asyncio.run(story())
