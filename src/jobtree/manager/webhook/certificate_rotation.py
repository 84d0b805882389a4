"""Decides the next change of the webhook's certificates from the content of the Secret.

``next_change`` depends only on that content, the time, and how long the bundle has been published. The leader
writes the change. So a new leader continues where the last one stopped.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jobtree.manager.webhook.certificates import (
    NEXT_CERTIFICATE,
    NEXT_KEY,
    SHOWN_CERTIFICATE,
    SHOWN_KEY,
    TRUSTED,
    UNREADABLE,
    CertificateSchedule,
    CertificateSet,
    ServingCertificate,
    ends_at,
    fault,
    is_alive,
    issue,
)

BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n?", re.DOTALL)


class CertificateChange(NamedTuple):
    """The new certificates, and why they change."""

    certificates: CertificateSet
    why: str


def decode_secret(
    data: Mapping[str, str], names: Sequence[str], now: float
) -> tuple[CertificateSet | None, str]:
    """Returns the certificates in the data of a Secret, or None and why they cannot be used."""
    text = {key: _decoded(value) for key, value in data.items()}
    authorities: list[str] = BLOCK.findall(text.get(TRUSTED, ""))

    def serving_certificate(certificate: str, key: str) -> ServingCertificate | str:
        """Returns the certificate with the authority that signed it, or why it cannot be used."""
        faults = []
        for authority in authorities:
            serving = ServingCertificate(text.get(certificate, ""), text.get(key, ""), authority)
            why = fault(serving, names, now)
            if not why:
                return serving
            faults.append(why)
        return next((why for why in faults if why != UNREADABLE), UNREADABLE)

    shown = serving_certificate(SHOWN_CERTIFICATE, SHOWN_KEY)
    following = serving_certificate(NEXT_CERTIFICATE, NEXT_KEY)
    if isinstance(shown, str):
        return None, shown
    trusted = tuple(pem for pem in authorities if is_alive(pem, now))
    return CertificateSet(shown, trusted, None if isinstance(following, str) else following), ""


def encode_secret(certificates: CertificateSet) -> dict[str, str]:
    """Returns the certificates as the data of a Secret."""
    text = {
        SHOWN_CERTIFICATE: certificates.shown.certificate,
        SHOWN_KEY: certificates.shown.key,
        TRUSTED: certificates.bundle,
    }
    if certificates.next is not None:
        text |= {NEXT_CERTIFICATE: certificates.next.certificate, NEXT_KEY: certificates.next.key}
    return {key: b64encode(value.encode()).decode() for key, value in text.items()}


def new_certificates(names: Sequence[str], now: float, schedule: CertificateSchedule) -> CertificateSet:
    issued = issue(names, now, schedule.valid)
    return CertificateSet(issued, (issued.authority,))


def next_change(
    certificates: CertificateSet,
    names: Sequence[str],
    now: float,
    schedule: CertificateSchedule,
    published_seconds: float,
) -> CertificateChange | None:
    """Returns the change that is due, if there is one.

    All configurations have had the bundle for ``published_seconds``.
    """
    following = certificates.next
    if following is None:
        if now < ends_at(certificates.shown.certificate) - schedule.renewal_lead_time:
            return None
        issued = issue(names, now, schedule.valid)
        trusted = (*certificates.trusted, issued.authority)
        return CertificateChange(
            CertificateSet(certificates.shown, trusted, issued), "the next certificate is made and published"
        )
    if published_seconds >= schedule.trust_delay:
        return CertificateChange(
            CertificateSet(following, certificates.trusted), "the next certificate is shown from now on"
        )
    return None


def _decoded(value: str) -> str:
    try:
        return b64decode(value, validate=True).decode()
    except ValueError:
        return ""
