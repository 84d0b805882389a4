"""Certificates: how they are issued, when they are refused, and when the next one replaces them."""

import ssl
from base64 import b64encode

import pytest

from jobtree.manager.settings import VALID_SECONDS
from jobtree.manager.webhook.certificate_rotation import (
    decode_secret,
    encode_secret,
    new_certificates,
    next_change,
)
from jobtree.manager.webhook.certificates import (
    CertificateSchedule,
    CertificateSet,
    ServingCertificate,
    fault,
    issue,
)
from jobtree.manager.webhook.webhook_server import load_chain

NAMES = ("jobtree-webhook.jobtree-system.svc", "127.0.0.1")
NOW = 1_800_000_000.0
SCHEDULE = CertificateSchedule(1200)


def handshake_succeeds(identity: ServingCertificate, bundle: str, name: str) -> bool:
    """Whether a client that trusts the bundle accepts the certificate under this name."""
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_chain(server_context, identity)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context(cadata=bundle).wrap_bio(to_client, to_server, server_hostname=name)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return False
    return True


def test_certificate_is_valid_for_its_names_and_no_other() -> None:
    import time  # noqa: PLC0415  TLS reads the real clock

    certificates = new_certificates(NAMES, time.time(), SCHEDULE)
    assert handshake_succeeds(certificates.shown, certificates.bundle, NAMES[0])
    assert handshake_succeeds(certificates.shown, certificates.bundle, NAMES[1])
    assert not handshake_succeeds(certificates.shown, certificates.bundle, "example.com")
    other = new_certificates(NAMES, time.time(), SCHEDULE)
    assert not handshake_succeeds(certificates.shown, other.bundle, NAMES[0])


def test_encoded_secret_is_decoded_to_the_same_certificates() -> None:
    certificates = new_certificates(NAMES, NOW, SCHEDULE)
    assert decode_secret(encode_secret(certificates), NAMES, NOW) == (certificates, "")
    renewed = next_change(certificates, NAMES, NOW + 801, SCHEDULE, 0.0)
    assert renewed is not None
    assert decode_secret(encode_secret(renewed.certificates), NAMES, NOW + 801) == (renewed.certificates, "")


def broken(**fields: str) -> dict[str, str]:
    data = encode_secret(new_certificates(NAMES, NOW, SCHEDULE))
    return {**data, **{f"{key.replace('_', '.')}": value for key, value in fields.items()}}


@pytest.mark.parametrize(
    ("data", "now", "says"),
    [
        ({}, NOW, "no certificate"),
        (broken(tls_crt="!"), NOW, "no certificate"),
        (broken(tls_crt=b64encode(b"\xff\x00garbage").decode()), NOW, "no certificate"),
        (broken(ca_crt=""), NOW, "no certificate"),
        (
            broken(tls_key=encode_secret(new_certificates(NAMES, NOW, SCHEDULE))["tls.key"]),
            NOW,
            "key is that of another",
        ),
        (broken(), NOW + 1200, "it expired at 2027-01-15T08:20:00Z"),
        (broken(), NOW - 301, "it is not valid before"),
        (encode_secret(new_certificates(NAMES[:1], NOW, SCHEDULE)), NOW, "does not hold for 127.0.0.1"),
    ],
    ids=["empty", "no-base64", "garbage", "no-authority", "wrong-key", "expired", "early", "other-names"],
)
def test_unusable_secret_is_refused_with_a_reason(data: dict[str, str], now: float, says: str) -> None:
    certificates, why = decode_secret(data, NAMES, now)
    assert certificates is None
    assert says in why


def test_next_certificate_is_published_before_it_is_shown() -> None:
    certificates = new_certificates(NAMES, NOW, SCHEDULE)
    assert next_change(certificates, NAMES, NOW + 799, SCHEDULE, 800.0) is None, (
        "a third of its validity is left"
    )
    made = next_change(certificates, NAMES, NOW + 800, SCHEDULE, 800.0)
    assert made is not None
    assert made.certificates.shown == certificates.shown
    assert made.certificates.next is not None
    assert made.certificates.trusted == (*certificates.trusted, made.certificates.next.authority)
    assert next_change(made.certificates, NAMES, NOW + 850, SCHEDULE, SCHEDULE.trust_delay - 1) is None, (
        "API servers may not trust it yet"
    )
    done = next_change(made.certificates, NAMES, NOW + 860, SCHEDULE, SCHEDULE.trust_delay)
    assert done is not None
    assert done.certificates == CertificateSet(made.certificates.next, made.certificates.trusted)


def test_authority_is_trusted_until_it_expires() -> None:
    old = new_certificates(NAMES, NOW, SCHEDULE)
    following = issue(NAMES, NOW + 800, SCHEDULE.valid)
    renewed = CertificateSet(following, (*old.trusted, following.authority))
    assert len(_read(renewed, NOW + 1199).trusted) == 2
    assert _read(renewed, NOW + 1200).trusted == (following.authority,)


def _read(certificates: CertificateSet, now: float) -> CertificateSet:
    read, why = decode_secret(encode_secret(certificates), NAMES, now)
    assert read is not None, why
    return read


def test_broken_next_certificate_is_ignored() -> None:
    certificates = new_certificates(NAMES, NOW, SCHEDULE)
    data = {**encode_secret(certificates), "next.crt": "!!", "next.key": "!!"}
    read, why = decode_secret(data, NAMES, NOW)
    assert (read, why) == (certificates, "")


def test_intervals_depend_on_the_validity() -> None:
    schedule = CertificateSchedule(VALID_SECONDS)
    assert (schedule.check_interval, schedule.trust_delay, schedule.renewal_lead_time) == (
        10,
        60,
        30 * 24 * 3600,
    )
    assert (CertificateSchedule(24).check_interval, CertificateSchedule(24).trust_delay) == (1, 2)
    assert fault(issue(NAMES, NOW, 90), NAMES, NOW + 89) == ""
