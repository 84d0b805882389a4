"""A plain HTTP client for the API server of a test cluster.

Tests use it to check what the server itself answers: status code, Status message and Warning headers. Tests
of what a user sees run kubectl.
"""

import json
import ssl
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.live.cluster.certificates import Authority, KeyPair

MERGE_PATCH = "application/merge-patch+json"
TIMEOUT_SECONDS = 30
CONNECTIONS = 4


@dataclass(frozen=True)
class Answer:
    """An answer of the API server. The ``body`` of a refusal is a metav1.Status."""

    status: int
    body: Any
    warnings: tuple[str, ...]

    @property
    def accepted(self) -> bool:
        return self.status < 300

    @property
    def message(self) -> str:
        """The reason that the server gives for a refusal."""
        return str(self.body.get("message", "")) if isinstance(self.body, dict) else str(self.body)


class RestClient:
    """Requests to one API server as one user."""

    def __init__(
        self,
        url: str,
        authority: Authority,
        identity: KeyPair,
        scratch: Path,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._url = url
        self._timeout_seconds = timeout_seconds
        self._tls = ssl.create_default_context(cadata=authority.certificate)
        # The ssl module reads the certificate of a client only from a file.
        pem = scratch / "rest-client.pem"
        pem.touch(mode=0o600)
        pem.write_text(identity.key + identity.public)
        self._tls.load_cert_chain(pem)
        pem.unlink()

    def get(self, path: str) -> Answer:
        return self._send("GET", path)

    def post(self, path: str, manifest: Mapping[str, Any]) -> Answer:
        return self._send("POST", path, manifest)

    def post_all(self, path: str, manifests: Sequence[Mapping[str, Any]]) -> list[Answer]:
        """Posts manifests over several connections; returns the answers in the order of the manifests."""
        shares = [range(start, len(manifests), CONNECTIONS) for start in range(CONNECTIONS)]
        answers: dict[int, Answer] = {}

        def post_share(share: range) -> None:
            with self._connect() as connection:
                for index in share:
                    answers[index] = _exchange(connection, "POST", path, manifests[index])

        with ThreadPoolExecutor(CONNECTIONS) as pool:
            list(pool.map(post_share, shares))
        return [answers[index] for index in range(len(manifests))]

    def put(self, path: str, manifest: Mapping[str, Any]) -> Answer:
        return self._send("PUT", path, manifest)

    def merge(self, path: str, patch: Mapping[str, Any]) -> Answer:
        """Sends a JSON merge patch; a field that is ``None`` is removed."""
        return self._send("PATCH", path, patch, content_type=MERGE_PATCH)

    def delete(self, path: str) -> Answer:
        return self._send("DELETE", path)

    def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> Answer:
        with self._connect() as connection:
            return _exchange(connection, method, path, body, content_type)

    def _connect(self) -> closing[HTTPSConnection]:
        netloc = urlsplit(self._url).netloc
        return closing(HTTPSConnection(netloc, context=self._tls, timeout=self._timeout_seconds))


def _exchange(
    connection: HTTPSConnection,
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    content_type: str = "application/json",
) -> Answer:
    connection.request(
        method,
        path,
        body=None if body is None else json.dumps(body).encode(),
        headers={"Accept": "application/json", "Content-Type": content_type},
    )
    response = connection.getresponse()
    return _answer(response.status, response.read(), response.headers.get_all("Warning"))


def _answer(status: int, raw: bytes, warnings: list[str] | None) -> Answer:
    try:
        body = json.loads(raw)
    except ValueError:
        body = raw.decode(errors="replace")
    return Answer(status, body, tuple(warnings or ()))
