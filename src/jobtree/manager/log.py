"""One line for every thing that happened: JSON, with the part that speaks first."""

import sys
import time
from typing import IO

import msgspec

from jobtree.kube.http.api_errors import StatusError

GRANT = "grant the manager's account the rights of deploy/kustomize/base/rbac.yaml; no restart is needed"


def log_fields(refused: Exception) -> dict[str, str]:
    """Why something was refused, and what an administrator has to do, where it is theirs to do."""
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
