"""A live cluster for unit tests: a server with the objects that a test gives it, and a kubeconfig for it."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.unit.cli.manifests import Body
from tests.unit.kube.server import FakeServer, ReceivedRequest, Reply, serving, status

GROUP = "/apis/rq.davidlangworthy.io/v1"
PLURALS = {"Node": "nodes", "Pod": "pods", "Budget": "budgets", "Run": "runs", "Reservation": "reservations"}
Override = Callable[[ReceivedRequest], Reply | None]
"""Answers a request in place of the server, or returns None."""


def as_served(body: Body, uid: str = "") -> Body:
    """Adds the metadata that an API server sets."""
    metadata = body["metadata"]
    metadata.setdefault("uid", uid or f"uid-{body['kind']}-{metadata['name']}")
    metadata.setdefault("creationTimestamp", "2026-01-05T09:00:00Z")
    metadata.setdefault("resourceVersion", "1")
    metadata.setdefault("generation", 1)
    if body["kind"] in ("Run", "Reservation", "Pod"):
        metadata.setdefault("namespace", "default")
    return body


@contextmanager
def fake_cluster(directory: Path, *bodies: Body, override: Override = lambda _: None) -> Iterator[FakeServer]:
    """Serves these objects, and writes a kubeconfig for the server to ``directory/config``."""

    def answer(request: ReceivedRequest) -> Reply:
        reply = override(request)
        if reply is not None:
            return reply
        kinds = {"gpuleases": "Lease"} | {plural: kind for kind, plural in PLURALS.items()}
        parts = request.path.split("/")
        if request.method == "GET" and parts[-1] in kinds:
            kind = kinds[parts[-1]]
            namespace = parts[-2] if "namespaces" in parts else None
            name = request.query.get("fieldSelector", "").partition("metadata.name=")[2]
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
                request.method == "GET"
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
