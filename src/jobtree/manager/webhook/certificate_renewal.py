"""Keeps the webhook's Secret and the trust in it: every replica reads, the leader writes.

The leader makes the Secret on first use; if another was faster, that one holds. What is missing, unreadable
or expired is made anew and told. The ``caBundle`` of every configuration is kept equal to what the Secret
trusts, also where somebody empties it. A replica that does not lead looks whether that has been done: until
then the API server would not believe what it shows.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

from jobtree.kube.http import api_requests
from jobtree.kube.http.api_errors import NOT_FOUND, StatusError
from jobtree.kube.http.api_requests import Preconditions
from jobtree.kube.http.api_resources import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS, Resource
from jobtree.kube.http.async_client import AsyncClient
from jobtree.kube.installation import WEBHOOK_NAME, WEBHOOK_RULES_NAME, WEBHOOK_SECRET
from jobtree.kube.write.object_writer import Writer
from jobtree.manager.log import Log
from jobtree.manager.settings import ManagerSettings
from jobtree.manager.webhook.certificate_rotation import (
    decode_secret,
    encode_secret,
    new_certificates,
    next_change,
)
from jobtree.manager.webhook.certificates import CertificateSchedule, CertificateSet

CONFIGURATIONS = (
    (VALIDATING_WEBHOOKS, WEBHOOK_NAME),
    (MUTATING_WEBHOOKS, WEBHOOK_NAME),
    (VALIDATING_WEBHOOKS, WEBHOOK_RULES_NAME),
)

ObjectBody = dict[str, Any]


def certificate_names(namespace: str, more: str) -> tuple[str, ...]:
    """The names that a certificate must hold for: those of the Service, and what the settings add."""
    service = f"{WEBHOOK_NAME}.{namespace}.svc"
    return (service, f"{service}.cluster.local", *filter(None, (name.strip() for name in more.split(","))))


class CertificateRenewal:
    def __init__(
        self, client: AsyncClient, settings: ManagerSettings, log: Log, clock: Callable[[], float]
    ) -> None:
        self.papers: CertificateSet | None = None
        self.untrusting: tuple[str, ...] = ()  # configurations by which the API server does not trust them
        self._client = client
        self._namespace = settings.namespace
        self._names = certificate_names(settings.namespace, settings.webhook_names)
        self._pace = CertificateSchedule(settings.webhook_validity_seconds)
        self._log = log
        self._clock = clock
        self._published: tuple[str, float] = ("", 0.0)  # the bundle, and since when all carry it

    async def check(self, writer: Writer | None) -> None:
        """Read the Secret; with a ``writer``, mend and renew it and publish what it trusts. KubeError."""
        secret = await self._find(SECRETS, WEBHOOK_SECRET, self._namespace)
        papers, why = decode_secret((secret or {}).get("data") or {}, self._names, self._clock())
        if writer is not None:
            papers = await self._tend(writer, secret, papers, why)
        if papers is None:
            return
        self.papers = papers
        if writer is None:
            self.untrusting = await self._without(papers.shown.authority)

    async def _tend(
        self, writer: Writer, secret: ObjectBody | None, papers: CertificateSet | None, why: str
    ) -> CertificateSet:
        if papers is None:
            if secret is not None:
                self._say("the certificate cannot be used: a new one is made", why=why)
            papers = await self._write(
                writer, secret, new_certificates(self._names, self._clock(), self._pace)
            )
            return await self._publish(writer, papers)
        papers = await self._publish(writer, papers)
        amendment = next_change(
            papers, self._names, self._clock(), self._pace, self._published_seconds(papers)
        )
        if amendment is None:
            return papers
        papers = await self._write(writer, secret, amendment.papers)
        self._say(amendment.why)
        return await self._publish(writer, papers)

    # The Secret

    async def _write(
        self, writer: Writer, secret: ObjectBody | None, papers: CertificateSet
    ) -> CertificateSet:
        """What the Secret holds then: of two writers the first is right."""
        new = {
            "apiVersion": SECRETS.api_version,
            "kind": SECRETS.kind,
            "metadata": {"name": WEBHOOK_SECRET, "namespace": self._namespace},
            "type": "Opaque",
        }
        data = {"data": encode_secret(papers)}
        try:
            if secret is None:
                await writer.write(api_requests.create(SECRETS, {**new, **data}))
            else:
                await writer.write(api_requests.replace(SECRETS, {**secret, **data}))
        except StatusError as refused:
            if not refused.exists_already and not refused.is_conflict:
                raise
            there = await self._find(SECRETS, WEBHOOK_SECRET, self._namespace) or {}
            return decode_secret(there.get("data") or {}, self._names, self._clock())[0] or papers
        return papers

    # The configurations

    async def _publish(self, writer: Writer, papers: CertificateSet) -> CertificateSet:
        wanted = b64encode(papers.bundle.encode()).decode()
        for resource, name in CONFIGURATIONS:
            found = await self._find(resource, name)
            if found is not None and trusted_by(found) != {wanted}:
                await self._patch(writer, resource, found, wanted)
        if self._published[0] != papers.bundle:
            self._published = (papers.bundle, self._clock())
        self.untrusting = ()
        return papers

    async def _without(self, authority: str) -> tuple[str, ...]:
        """The configurations that do not trust it."""
        names = []
        for resource, name in CONFIGURATIONS:
            found = await self._find(resource, name) or {}
            if any(
                authority not in b64decode(bundle).decode(errors="replace") for bundle in trusted_by(found)
            ):
                names.append(f"{resource.kind} {name}")
        return tuple(names)

    async def _patch(self, writer: Writer, resource: Resource, found: ObjectBody, wanted: str) -> None:
        webhooks = [
            {**webhook, "clientConfig": {**webhook["clientConfig"], "caBundle": wanted}}
            for webhook in found.get("webhooks") or ()
        ]
        metadata = found["metadata"]
        seen = Preconditions(metadata["name"], resource_version=metadata["resourceVersion"])
        await writer.write(api_requests.merge_patch(resource, seen, {"webhooks": webhooks}))
        self._say("the caBundle was brought up to date", configuration=resource.kind, name=metadata["name"])

    def _published_seconds(self, papers: CertificateSet) -> float:
        bundle, since = self._published
        return self._clock() - since if bundle == papers.bundle else 0.0

    async def _find(self, resource: Resource, name: str, namespace: str = "") -> ObjectBody | None:
        try:
            return await self._client.ask(api_requests.get(resource, name, namespace))
        except StatusError as refused:
            if refused.code != NOT_FOUND:
                raise
            return None

    def _say(self, message: str, **details: object) -> None:
        self._log.say("webhook", message, secret=f"{self._namespace}/{WEBHOOK_SECRET}", **details)


def trusted_by(configuration: ObjectBody) -> set[str]:
    """The bundles of its webhooks; one where all is well."""
    webhooks = configuration.get("webhooks") or ()
    return {webhook["clientConfig"].get("caBundle", "") for webhook in webhooks}
