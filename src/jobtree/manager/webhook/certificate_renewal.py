"""Renews the certificates in the webhook's Secret: every replica reads the Secret, the leader writes it.

The leader creates the Secret on first use; if another process was faster, its Secret is used. A certificate
that is missing, unreadable or expired is replaced, with a line in the log. The leader keeps the ``caBundle``
of every configuration equal to the trusted authorities of the Secret. Each other replica checks that
``caBundle``, because the API server refuses a certificate that it does not trust.
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
    """Returns the names of a certificate: those of the Service, and those in the settings."""
    service = f"{WEBHOOK_NAME}.{namespace}.svc"
    return (service, f"{service}.cluster.local", *filter(None, (name.strip() for name in more.split(","))))


class CertificateRenewal:
    def __init__(
        self, client: AsyncClient, settings: ManagerSettings, log: Log, clock: Callable[[], float]
    ) -> None:
        self.certificates: CertificateSet | None = None
        self.untrusting: tuple[str, ...] = ()  # configurations that do not trust the present certificate
        self._client = client
        self._namespace = settings.namespace
        self._names = certificate_names(settings.namespace, settings.webhook_names)
        self._schedule = CertificateSchedule(settings.webhook_validity_seconds)
        self._log = log
        self._clock = clock
        self._published: tuple[str, float] = (
            "",
            0.0,
        )  # the bundle, and since when all configurations have it

    async def check(self, writer: Writer | None) -> None:
        """Reads the Secret; with a ``writer``, renews it and updates the configurations. Raises KubeError."""
        secret = await self._find(SECRETS, WEBHOOK_SECRET, self._namespace)
        certificates, why = decode_secret((secret or {}).get("data") or {}, self._names, self._clock())
        if writer is not None:
            certificates = await self._renew(writer, secret, certificates, why)
        if certificates is None:
            return
        self.certificates = certificates
        if writer is None:
            self.untrusting = await self._configurations_without(certificates.shown.authority)

    async def _renew(
        self, writer: Writer, secret: ObjectBody | None, certificates: CertificateSet | None, why: str
    ) -> CertificateSet:
        if certificates is None:
            if secret is not None:
                self._say("the certificate cannot be used: a new one is made", why=why)
            certificates = await self._write(
                writer, secret, new_certificates(self._names, self._clock(), self._schedule)
            )
            return await self._publish(writer, certificates)
        certificates = await self._publish(writer, certificates)
        change = next_change(
            certificates, self._names, self._clock(), self._schedule, self._published_seconds(certificates)
        )
        if change is None:
            return certificates
        certificates = await self._write(writer, secret, change.certificates)
        self._say(change.why)
        return await self._publish(writer, certificates)

    # The Secret

    async def _write(
        self, writer: Writer, secret: ObjectBody | None, certificates: CertificateSet
    ) -> CertificateSet:
        """Writes the Secret; returns what it holds then, which may be from a faster writer."""
        new = {
            "apiVersion": SECRETS.api_version,
            "kind": SECRETS.kind,
            "metadata": {"name": WEBHOOK_SECRET, "namespace": self._namespace},
            "type": "Opaque",
        }
        data = {"data": encode_secret(certificates)}
        try:
            if secret is None:
                await writer.write(api_requests.create(SECRETS, {**new, **data}))
            else:
                await writer.write(api_requests.replace(SECRETS, {**secret, **data}))
        except StatusError as error:
            if not error.exists_already and not error.is_conflict:
                raise
            stored = await self._find(SECRETS, WEBHOOK_SECRET, self._namespace) or {}
            return decode_secret(stored.get("data") or {}, self._names, self._clock())[0] or certificates
        return certificates

    # The configurations

    async def _publish(self, writer: Writer, certificates: CertificateSet) -> CertificateSet:
        bundle = b64encode(certificates.bundle.encode()).decode()
        for resource, name in CONFIGURATIONS:
            configuration = await self._find(resource, name)
            if configuration is not None and bundles_of(configuration) != {bundle}:
                await self._patch(writer, resource, configuration, bundle)
        if self._published[0] != certificates.bundle:
            self._published = (certificates.bundle, self._clock())
        self.untrusting = ()
        return certificates

    async def _configurations_without(self, authority: str) -> tuple[str, ...]:
        """Returns the configurations that do not trust the authority."""
        names = []
        for resource, name in CONFIGURATIONS:
            bundles = bundles_of(await self._find(resource, name) or {})
            if any(authority not in b64decode(bundle).decode(errors="replace") for bundle in bundles):
                names.append(f"{resource.kind} {name}")
        return tuple(names)

    async def _patch(
        self, writer: Writer, resource: Resource, configuration: ObjectBody, bundle: str
    ) -> None:
        webhooks = [
            {**webhook, "clientConfig": {**webhook["clientConfig"], "caBundle": bundle}}
            for webhook in configuration.get("webhooks") or ()
        ]
        metadata = configuration["metadata"]
        preconditions = Preconditions(metadata["name"], resource_version=metadata["resourceVersion"])
        await writer.write(api_requests.merge_patch(resource, preconditions, {"webhooks": webhooks}))
        self._say("the caBundle was brought up to date", configuration=resource.kind, name=metadata["name"])

    def _published_seconds(self, certificates: CertificateSet) -> float:
        bundle, since = self._published
        return self._clock() - since if bundle == certificates.bundle else 0.0

    async def _find(self, resource: Resource, name: str, namespace: str = "") -> ObjectBody | None:
        try:
            return await self._client.ask(api_requests.get(resource, name, namespace))
        except StatusError as error:
            if error.code != NOT_FOUND:
                raise
            return None

    def _say(self, message: str, **details: object) -> None:
        self._log.say("webhook", message, secret=f"{self._namespace}/{WEBHOOK_SECRET}", **details)


def bundles_of(configuration: ObjectBody) -> set[str]:
    """Returns the CA bundles of the webhooks of a configuration; normally they are equal."""
    webhooks = configuration.get("webhooks") or ()
    return {webhook["clientConfig"].get("caBundle", "") for webhook in webhooks}
