"""Reads the lottery key of simulated clusters from a file, which it creates on first use.

Only the owner can read the file, since draws can be predicted with the key. Its public key may be printed.
"""

import os
import secrets
from pathlib import Path

from jobtree.api.schema.problems import JobtreeError
from jobtree.messages.record_signature import KEY_BYTES


class KeyFileError(JobtreeError):
    """The key file cannot be used; the message says why."""

    exit_code = 74


def key_path() -> Path:
    """Returns ``$JOBTREE_LOTTERY_KEY``, else ``jobtree/lottery.key`` in the configuration directory."""
    explicit = os.environ.get("JOBTREE_LOTTERY_KEY")
    if explicit:
        return Path(explicit)
    config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(config) / "jobtree" / "lottery.key"


def load_key(path: Path) -> bytes:
    """Returns the key in a file; creates the file with a new key if it does not exist."""
    try:
        text = path.read_text().strip()
    except FileNotFoundError:
        return create_key(path)
    except OSError as error:
        raise KeyFileError(f"cannot read the lottery key {path}: {error.strerror}") from None
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise KeyFileError(f"the lottery key {path} must hold {2 * KEY_BYTES} hexadecimal digits")
    return key


def create_key(path: Path) -> bytes:
    key = secrets.token_bytes(KEY_BYTES)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return load_key(path)  # another command was faster
    except OSError as error:
        raise KeyFileError(f"cannot write the lottery key {path}: {error.strerror}") from None
    with os.fdopen(descriptor, "w") as file:
        file.write(key.hex() + "\n")
    return key
