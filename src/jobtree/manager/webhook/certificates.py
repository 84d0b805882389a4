"""Issues and checks the certificates of the webhook, which only the API server must trust.

Each serving certificate has an authority of its own, whose key is discarded after it has signed: it cannot be
stolen, and only one certificate has to be renewed. The API server trusts the authorities in the ``caBundle``
of the webhook's configurations.

A certificate is renewed in two steps, so that every certificate that is shown is trusted. When a third of its
validity is left, the next certificate is issued and its authority is published beside the old one. When all
API servers have had time to read it, the next certificate is shown. Old authorities stay trusted until they
expire.

Times are seconds since 1970, passed in by the caller.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from ipaddress import ip_address

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

MAX_TRUST_DELAY_SECONDS = 60
MAX_CHECK_SECONDS = 10
SKEW_SECONDS = 300  # how far the clock of an API server may be behind

SHOWN_CERTIFICATE, SHOWN_KEY = "tls.crt", "tls.key"
NEXT_CERTIFICATE, NEXT_KEY = "next.crt", "next.key"
TRUSTED = "ca.crt"
UNREADABLE = "it holds no certificate with its key and an authority that signed it"


class CertificateSchedule(msgspec.Struct, frozen=True):
    """The validity of a certificate in seconds, and the intervals that depend on it."""

    valid: int

    @property
    def renewal_lead_time(self) -> float:
        """The validity that is left when the next certificate is issued."""
        return self.valid / 3

    @property
    def trust_delay(self) -> float:
        """How long API servers may take to read a new authority."""
        return min(MAX_TRUST_DELAY_SECONDS, self.valid / 12)

    @property
    def check_interval(self) -> float:
        """How often the Secret and the configurations are checked."""
        return min(MAX_CHECK_SECONDS, self.valid / 24)


class ServingCertificate(msgspec.Struct, frozen=True):
    """A serving certificate with its key and the authority that signed it, all in PEM."""

    certificate: str
    key: str
    authority: str


class CertificateSet(msgspec.Struct, frozen=True):
    """The content of the Secret: the present and the next certificate, and all trusted authorities."""

    shown: ServingCertificate
    trusted: tuple[str, ...]
    next: ServingCertificate | None = None

    @property
    def bundle(self) -> str:
        return "".join(self.trusted)


# Issuing


def issue(names: Sequence[str], now: float, valid: float) -> ServingCertificate:
    """Issues a certificate for these names, signed by a new authority."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"jobtree-webhook-ca-{int(now)}")])
    signed = _builder(authority, authority, authority_key.public_key(), now, valid).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "jobtree-webhook")])
    alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
    serving = (
        _builder(subject, authority, key.public_key(), now, valid)
        .add_extension(alternatives, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    )
    return ServingCertificate(
        _pem(serving.sign(authority_key, hashes.SHA256())),
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
        _pem(signed.sign(authority_key, hashes.SHA256())),
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: float, valid: float
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.fromtimestamp(int(now) - SKEW_SECONDS, UTC))
        .not_valid_after(datetime.fromtimestamp(int(now + valid), UTC))
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


# Checking


def ends_at(pem: str) -> float:
    return _load(pem).not_valid_after_utc.timestamp()


def fault(serving: ServingCertificate, names: Iterable[str], now: float) -> str:
    """Returns why a certificate cannot be used; empty if it can."""
    try:
        certificate, authority = _load(serving.certificate), _load(serving.authority)
        key = serialization.load_pem_private_key(serving.key.encode(), None)
        certificate.verify_directly_issued_by(authority)
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception:  # noqa: BLE001  any error means that it is no certificate
        return UNREADABLE
    missing = [name for name in names if _general_name(name) not in list(alternatives)]
    if now >= min(ends_at(serving.certificate), ends_at(serving.authority)):
        return f"it expired at {certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
    if now < certificate.not_valid_before_utc.timestamp():
        return f"it is not valid before {certificate.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ}"
    if key.public_key() != certificate.public_key():
        return "its key is that of another certificate"
    return f"it does not hold for {missing[0]}" if missing else ""


def is_alive(pem: str, now: float) -> bool:
    """Whether an authority is readable and has not expired."""
    try:
        return now < ends_at(pem)
    except ValueError:
        return False


def _load(pem: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem.encode())
