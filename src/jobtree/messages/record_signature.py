"""Signs the records of lotteries.

The nonces of lotteries are derived from the lottery key of the cluster. Records are signed with an Ed25519
key that is derived from it in another way.
"""

import hashlib
from typing import TYPE_CHECKING

import msgspec

from jobtree.core import Record, signed_bytes

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEY_BYTES = 32


def signing_key(key: bytes) -> "Ed25519PrivateKey":
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415  slow to load, rarely needed
        Ed25519PrivateKey,
    )

    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"jobtree signing key" + key).digest())


def public_key(key: bytes) -> str:
    return signing_key(key).public_key().public_bytes_raw().hex()


def sign(record: Record, key: bytes) -> Record:
    """Returns the record with its signature and the public key."""
    signature = signing_key(key).sign(signed_bytes(record))
    return msgspec.structs.replace(record, signature=signature.hex(), public_key=public_key(key))
