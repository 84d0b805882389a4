"""Builds the ssl context of both transports: the trusted authorities and the client certificate."""

import base64
import binascii
import ssl
import tempfile
from typing import Any

from jobtree.kube.auth.kubeconfig import ClusterEntry, LocatedEntry


def tls_context(cluster: LocatedEntry[ClusterEntry]) -> ssl.SSLContext:
    """Returns a context that trusts the authority of the cluster, or those of the system if it names none."""
    entry = cluster.entry
    authority = read_pem(
        cluster, "certificate-authority", entry.certificate_authority, entry.certificate_authority_data
    )
    if not authority and not entry.certificate_authority:
        context = ssl.create_default_context()
    else:
        # With empty data the ssl module would trust the authorities of the system instead.
        try:
            context = ssl.create_default_context(cadata=authority or "no certificate")
        except ssl.SSLError:
            source = entry.certificate_authority or "(data)"
            raise cluster.refuse("certificate-authority", source, "holds no certificate") from None
    if entry.insecure_skip_tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def load_client_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Makes the context present this certificate. Raises ssl.SSLError if the key belongs to another."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # the ssl module reads it from a file only
        file.write(f"{key}\n{certificate}\n")
        file.flush()
        context.load_cert_chain(file.name)


def read_pem(located: LocatedEntry[Any], field: str, path: str, data: str) -> str:
    """Returns the PEM text in ``data`` (base64), else in the file ``path``, else an empty string."""
    if data:
        try:
            return base64.b64decode(data, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise located.refuse(f"{field}-data", "(not shown)", "must be PEM in base64") from None
    if not path:
        return ""
    try:
        return located.path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise located.refuse(field, path, f"cannot be read: {why}") from None
