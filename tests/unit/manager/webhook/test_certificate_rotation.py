"""Certificates: what is made, what is refused, and when the next one takes its place."""

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
PACE = CertificateSchedule(1200)


def hands_shake(identity: ServingCertificate, bundle: str, name: str) -> bool:
    """Whether somebody who trusts the bundle accepts the certificate under this name."""
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


def test_the_certificate_holds_for_its_names_and_for_no_other() -> None:
    import time  # noqa: PLC0415  TLS looks at the real clock

    papers = new_certificates(NAMES, time.time(), PACE)
    assert hands_shake(papers.shown, papers.bundle, NAMES[0])
    assert hands_shake(papers.shown, papers.bundle, NAMES[1])
    assert not hands_shake(papers.shown, papers.bundle, "example.com")
    other = new_certificates(NAMES, time.time(), PACE)
    assert not hands_shake(papers.shown, other.bundle, NAMES[0])


def test_what_is_written_is_read_again() -> None:
    papers = new_certificates(NAMES, NOW, PACE)
    assert decode_secret(encode_secret(papers), NAMES, NOW) == (papers, "")
    renewed = next_change(papers, NAMES, NOW + 801, PACE, 0.0)
    assert renewed is not None
    assert decode_secret(encode_secret(renewed.papers), NAMES, NOW + 801) == (renewed.papers, "")


def broken(**fields: str) -> dict[str, str]:
    data = encode_secret(new_certificates(NAMES, NOW, PACE))
    return {**data, **{f"{key.replace('_', '.')}": value for key, value in fields.items()}}


@pytest.mark.parametrize(
    ("data", "now", "says"),
    [
        ({}, NOW, "no certificate"),
        (broken(tls_crt="!"), NOW, "no certificate"),
        (broken(tls_crt=b64encode(b"\xff\x00garbage").decode()), NOW, "no certificate"),
        (broken(ca_crt=""), NOW, "no certificate"),
        (
            broken(tls_key=encode_secret(new_certificates(NAMES, NOW, PACE))["tls.key"]),
            NOW,
            "key is that of another",
        ),
        (broken(), NOW + 1200, "it expired at 2027-01-15T08:20:00Z"),
        (broken(), NOW - 301, "it is not valid before"),
        (encode_secret(new_certificates(NAMES[:1], NOW, PACE)), NOW, "does not hold for 127.0.0.1"),
    ],
    ids=["empty", "no-base64", "garbage", "no-authority", "wrong-key", "expired", "early", "other-names"],
)
def test_what_cannot_be_used_is_told(data: dict[str, str], now: float, says: str) -> None:
    papers, why = decode_secret(data, NAMES, now)
    assert papers is None
    assert says in why


def test_the_next_certificate_is_published_before_it_is_shown() -> None:
    papers = new_certificates(NAMES, NOW, PACE)
    assert next_change(papers, NAMES, NOW + 799, PACE, 800.0) is None, "two thirds of its life"
    made = next_change(papers, NAMES, NOW + 800, PACE, 800.0)
    assert made is not None
    assert made.papers.shown == papers.shown
    assert made.papers.next is not None
    assert made.papers.trusted == (*papers.trusted, made.papers.next.authority)
    assert next_change(made.papers, NAMES, NOW + 850, PACE, PACE.trust_delay - 1) is None, (
        "servers may not know it yet"
    )
    done = next_change(made.papers, NAMES, NOW + 860, PACE, PACE.trust_delay)
    assert done is not None
    assert done.papers == CertificateSet(made.papers.next, made.papers.trusted)


def test_an_authority_is_trusted_until_it_expires() -> None:
    old = new_certificates(NAMES, NOW, PACE)
    following = issue(NAMES, NOW + 800, PACE.valid)
    both = CertificateSet(following, (*old.trusted, following.authority))
    assert len(_read(both, NOW + 1199).trusted) == 2
    assert _read(both, NOW + 1200).trusted == (following.authority,)


def _read(papers: CertificateSet, now: float) -> CertificateSet:
    read, why = decode_secret(encode_secret(papers), NAMES, now)
    assert read is not None, why
    return read


def test_a_broken_next_certificate_is_made_again() -> None:
    papers = new_certificates(NAMES, NOW, PACE)
    data = {**encode_secret(papers), "next.crt": "!!", "next.key": "!!"}
    read, why = decode_secret(data, NAMES, NOW)
    assert (read, why) == (papers, "")


def test_a_long_life_is_looked_at_now_and_then_and_a_short_one_often() -> None:
    pace = CertificateSchedule(VALID_SECONDS)
    assert (pace.check_interval, pace.trust_delay, pace.renewal_lead_time) == (10, 60, 30 * 24 * 3600)
    assert (CertificateSchedule(24).check_interval, CertificateSchedule(24).trust_delay) == (1, 2)
    assert fault(issue(NAMES, NOW, 90), NAMES, NOW + 89) == ""
