"""Whom we believe and how we show who we are: one ssl context for both transports."""

import base64
import binascii
import ssl
import tempfile
from typing import Any

from jobtree.kube.auth.kubeconfig import ClusterEntry, LocatedEntry


def trust(cluster: LocatedEntry[ClusterEntry]) -> ssl.SSLContext:
    """A context that believes the cluster's authority, or the system's where it names none."""
    entry = cluster.entry
    authority = read_pem(
        cluster, "certificate-authority", entry.certificate_authority, entry.certificate_authority_data
    )
    if not authority and not entry.certificate_authority:
        context = ssl.create_default_context()
    else:
        # Text that is empty would count as none: then the system's authorities would be believed instead.
        try:
            context = ssl.create_default_context(cadata=authority or "no certificate")
        except ssl.SSLError:
            named = entry.certificate_authority or "(data)"
            raise cluster.refuse("certificate-authority", named, "holds no certificate") from None
    if entry.insecure_skip_tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def show(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Present this certificate to servers. Raises ssl.SSLError if the two do not belong together."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # the ssl module reads it from a file only
        file.write(f"{key}\n{certificate}\n")
        file.flush()
        context.load_cert_chain(file.name)


def read_pem(found: LocatedEntry[Any], field: str, path: str, data: str) -> str:
    """What ``field`` names (a file) or ``field``-data holds (base64, which wins); empty if neither is set."""
    if data:
        try:
            return base64.b64decode(data, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise found.refuse(f"{field}-data", "(not shown)", "must be PEM in base64") from None
    if not path:
        return ""
    try:
        return found.path(path).read_text()
    except (OSError, UnicodeDecodeError) as broken:
        why = broken.strerror if isinstance(broken, OSError) else "it is not text"
        raise found.refuse(field, path, f"cannot be read: {why}") from None
