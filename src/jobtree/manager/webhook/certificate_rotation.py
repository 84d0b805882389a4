"""What to do about the webhook's certificates: one decision at a time, from what the Secret says.

``next_change`` follows from the Secret's content, the time, and for how long the bundle is published; whoever
leads writes what it answers. So a new leader goes on where the last one stopped.
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
    """The papers from now on, and why they change."""

    papers: CertificateSet
    why: str


def decode_secret(
    data: Mapping[str, str], names: Sequence[str], now: float
) -> tuple[CertificateSet | None, str]:
    """The papers in the data of a Secret, or why there are none that can be used."""
    text = {key: _decoded(value) for key, value in data.items()}
    authorities: list[str] = BLOCK.findall(text.get(TRUSTED, ""))

    def identity(certificate: str, key: str) -> ServingCertificate | str:
        """The certificate with the authority that signed it, or why it cannot be used."""
        faults = []
        for authority in authorities:
            one = ServingCertificate(text.get(certificate, ""), text.get(key, ""), authority)
            wrong = fault(one, names, now)
            if not wrong:
                return one
            faults.append(wrong)
        return next((wrong for wrong in faults if wrong != UNREADABLE), UNREADABLE)

    shown, following = identity(SHOWN_CERTIFICATE, SHOWN_KEY), identity(NEXT_CERTIFICATE, NEXT_KEY)
    if isinstance(shown, str):
        return None, shown
    trusted = tuple(pem for pem in authorities if is_alive(pem, now))
    return CertificateSet(shown, trusted, None if isinstance(following, str) else following), ""


def encode_secret(papers: CertificateSet) -> dict[str, str]:
    """The papers as the data of a Secret."""
    text = {
        SHOWN_CERTIFICATE: papers.shown.certificate,
        SHOWN_KEY: papers.shown.key,
        TRUSTED: papers.bundle,
    }
    if papers.next is not None:
        text |= {NEXT_CERTIFICATE: papers.next.certificate, NEXT_KEY: papers.next.key}
    return {key: b64encode(value.encode()).decode() for key, value in text.items()}


def new_certificates(names: Sequence[str], now: float, pace: CertificateSchedule) -> CertificateSet:
    made = issue(names, now, pace.valid)
    return CertificateSet(made, (made.authority,))


def next_change(
    papers: CertificateSet,
    names: Sequence[str],
    now: float,
    pace: CertificateSchedule,
    published_seconds: float,
) -> CertificateChange | None:
    """The next change, if it is time for one; the configurations have carried the bundle for so long."""
    following = papers.next
    if following is None:
        if now < ends_at(papers.shown.certificate) - pace.renewal_lead_time:
            return None
        made = issue(names, now, pace.valid)
        trusted = (*papers.trusted, made.authority)
        return CertificateChange(
            CertificateSet(papers.shown, trusted, made), "the next certificate is made and published"
        )
    if published_seconds >= pace.trust_delay:
        return CertificateChange(
            CertificateSet(following, papers.trusted), "the next certificate is shown from now on"
        )
    return None


def _decoded(value: str) -> str:
    try:
        return b64decode(value, validate=True).decode()
    except ValueError:
        return ""
