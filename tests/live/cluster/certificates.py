"""The certificate authority of a test cluster, and the certificates and kubeconfigs that it issues."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = timedelta(days=7)
CLOCK_SKEW = timedelta(minutes=5)


@dataclass(frozen=True)
class KeyPair:
    """A private key and a certificate or, for signing tokens, a public key; all in PEM."""

    key: str
    public: str


class Authority:
    """Signs the certificates of the parts and users of one cluster."""

    def __init__(self) -> None:
        self._key = _new_key()
        self._name = _name("jobtree test cluster", ())
        builder = _builder(self._name, self._name, self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self.certificate = _pem(builder.sign(self._key, hashes.SHA256()))

    def server(self, name: str, addresses: Sequence[str]) -> KeyPair:
        """Returns a certificate for a server with these host names and IP addresses."""
        return self._issue(name, (), ExtendedKeyUsageOID.SERVER_AUTH, addresses)

    def client(self, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """Returns a certificate that identifies ``user``, a member of ``groups``."""
        return self._issue(user, groups, ExtendedKeyUsageOID.CLIENT_AUTH, ())

    def _issue(
        self, user: str, groups: Sequence[str], usage: x509.ObjectIdentifier, addresses: Sequence[str]
    ) -> KeyPair:
        key = _new_key()
        builder = _builder(_name(user, groups), self._name, key.public_key()).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        if addresses:
            names = x509.SubjectAlternativeName([_alternative_name(address) for address in addresses])
            builder = builder.add_extension(names, critical=False)
        return KeyPair(_key_pem(key), _pem(builder.sign(self._key, hashes.SHA256())))


def token_signer() -> KeyPair:
    """Returns a key with which an API server signs the tokens of service accounts."""
    key = _new_key()
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return KeyPair(_key_pem(key), public.decode())


def private_file(path: Path, text: str) -> Path:
    """Writes a file that only this user can read, since most of them hold keys."""
    path.touch(mode=0o600)
    path.write_text(text)
    return path


def kubeconfig(server_url: str, authority: Authority, user: str, identity: KeyPair) -> str:
    """Returns a kubeconfig, as JSON, that contains its certificates and keys."""

    def inline(pem: str) -> str:
        return base64.b64encode(pem.encode()).decode()

    cluster = {"server": server_url, "certificate-authority-data": inline(authority.certificate)}
    credentials = {
        "client-certificate-data": inline(identity.public),
        "client-key-data": inline(identity.key),
    }
    context = {"cluster": "test", "user": user}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": "test", "context": context}],
        "current-context": "test",
    }
    return json.dumps(config, indent=2)


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _name(common_name: str, organizations: Sequence[str]) -> x509.Name:
    """Kubernetes reads the user from the common name and the groups from the organizations."""
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in organizations]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + VALID)
    )


def _alternative_name(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
