"""Writes the log: one line of JSON for each event, with the part of the manager that it comes from."""

import sys
import time
from typing import IO

import msgspec

from jobtree.kube.http.api_errors import StatusError

GRANT = "grant the manager's account the rights of deploy/kustomize/base/rbac.yaml; no restart is needed"


def log_fields(refused: Exception) -> dict[str, str]:
    """Returns why a request was refused, and the remedy if an administrator has to grant a right."""
    lacks_right = isinstance(refused, StatusError) and refused.lacks_right
    return {"why": str(refused), **({"remedy": GRANT} if lacks_right else {})}


class Log:
    def __init__(self, out: IO[str] | None = None) -> None:
        self._out = out or sys.stderr

    def say(self, part: str, message: object, **details: object) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
        line = {"at": f"{now}Z", "part": part, "message": message, **details}
        self._out.write(msgspec.json.encode(line, enc_hook=str).decode() + "\n")
        self._out.flush()
