"""Reads the lottery key of a cluster from its Secret, which the manager creates on first use.

Anybody who can read the key can predict draws, so only Jobtree's service account may read it. Its public key
is in every record.
"""

import secrets
from base64 import b64decode, b64encode
from binascii import Error
from typing import Any

import msgspec

from jobtree.kube.http import api_requests
from jobtree.kube.http.api_errors import NOT_FOUND, StatusError
from jobtree.kube.http.api_resources import SECRETS
from jobtree.kube.http.async_client import AsyncClient
from jobtree.kube.write.object_writer import Writer
from jobtree.messages.record_signature import KEY_BYTES

SECRET_NAME = "jobtree-lottery-key"  # noqa: S105  a name, not a secret
FIELD = "key"


class BrokenKeyError(Exception):
    """The Secret exists and holds no key; the message says what to do."""


async def lottery_key(client: AsyncClient, writer: Writer, namespace: str) -> bytes:
    """Returns the key, and creates it if there is none. Raises KubeError, BrokenKeyError."""
    try:
        secret = await client.ask(api_requests.get(SECRETS, SECRET_NAME, namespace))
    except StatusError as refused:
        if refused.code != NOT_FOUND:
            raise
        secret = await make_key(client, writer, namespace)
    return read_key(secret, namespace)


async def make_key(client: AsyncClient, writer: Writer, namespace: str) -> dict[str, Any]:
    document = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET_NAME, "namespace": namespace},
        "type": "Opaque",
        "data": {FIELD: b64encode(secrets.token_bytes(KEY_BYTES)).decode()},
    }
    try:
        made: dict[str, Any] = msgspec.json.decode(await writer.write(api_requests.create(SECRETS, document)))
    except StatusError as refused:
        if not refused.exists_already:
            raise
        return await client.ask(api_requests.get(SECRETS, SECRET_NAME, namespace))  # made meanwhile
    return made


def read_key(secret: dict[str, Any], namespace: str) -> bytes:
    try:
        key = b64decode((secret.get("data") or {}).get(FIELD, ""), validate=True)
    except Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise BrokenKeyError(
            f"Secret {namespace}/{SECRET_NAME}: data.{FIELD} must hold {KEY_BYTES} bytes; "
            "delete the Secret to have a new one made: promises made with the old key are then made again"
        )
    return key
