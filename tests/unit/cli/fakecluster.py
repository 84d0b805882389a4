"""A live cluster for unit tests: a server that lists what it is given, and a kubeconfig that leads to it."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.unit.cli.desk import Body
from tests.unit.kube.server import Asked, FakeServer, Reply, serving, status

GROUP = "/apis/rq.davidlangworthy.io/v1"
PLURALS = {"Node": "nodes", "Pod": "pods", "Budget": "budgets", "Run": "runs", "Reservation": "reservations"}
Special = Callable[[Asked], Reply | None]


def served(body: Body, uid: str = "") -> Body:
    """An object as a server has it."""
    metadata = body["metadata"]
    metadata.setdefault("uid", uid or f"uid-{body['kind']}-{metadata['name']}")
    metadata.setdefault("creationTimestamp", "2026-01-05T09:00:00Z")
    metadata.setdefault("resourceVersion", "1")
    metadata.setdefault("generation", 1)
    if body["kind"] in ("Run", "Reservation", "Pod"):
        metadata.setdefault("namespace", "default")
    return body


@contextmanager
def cluster(directory: Path, *bodies: Body, special: Special = lambda _: None) -> Iterator[FakeServer]:
    """A server with these objects, and a kubeconfig for it. ``special`` answers first, where it does."""

    def answer(asked: Asked) -> Reply:
        found = special(asked)
        if found is not None:
            return found
        plural = {"gpuleases": "Lease"} | {plural: kind for kind, plural in PLURALS.items()}
        parts = asked.path.split("/")
        if asked.method == "GET" and parts[-1] in plural:
            kind = plural[parts[-1]]
            namespace = parts[-2] if "namespaces" in parts else None
            name = asked.query.get("fieldSelector", "").partition("metadata.name=")[2]
            items = [
                body
                for body in bodies
                if body["kind"] == kind
                and namespace in (None, body["metadata"].get("namespace"))
                and name in ("", body["metadata"]["name"])
            ]
            return Reply(document={"metadata": {"resourceVersion": "9"}, "items": items})
        for body in bodies:
            if (
                asked.method == "GET"
                and PLURALS.get(body["kind"]) == parts[-2]
                and body["metadata"]["name"] == parts[-1]
            ):
                return Reply(document=body)
        return Reply(404, status(404, "NotFound", f'{parts[-2]} "{parts[-1]}" not found'))

    with serving(answer) as server:
        config = {
            "clusters": [{"name": "c", "cluster": {"server": server.url}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "default"}}],
            "current-context": "x",
        }
        (directory / "config").write_text(json.dumps(config))
        yield server
