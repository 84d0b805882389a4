"""The uninstall program removes only Jobtree's finalizer, also when others change Runs meanwhile."""

import asyncio
from typing import Any

import msgspec

from jobtree.kube.http.api_requests import Request
from jobtree.kube.http.api_resources import RUNS
from jobtree.kube.installation import FINALIZER
from jobtree.kube.write.object_writer import Writer
from jobtree.kube.write.write_gate import Gate
from jobtree.manager.uninstall import release
from tests.unit.manager.webhook.fake_server import FakeServer


class Cluster(FakeServer):
    """A server that can list Runs."""

    def run(self, name: str, *finalizers: str) -> str:
        path = RUNS.path("team", name)
        metadata = {"name": name, "namespace": "team", "uid": name, "finalizers": list(finalizers)}
        self.put(path, {"metadata": metadata})
        return path

    def finalizers(self, path: str) -> list[str]:
        finalizers: list[str] = self.objects[path]["metadata"]["finalizers"]
        return finalizers

    def released(self) -> int:
        return asyncio.run(release(self, Writer(self, Gate())))

    def _get(self, path: str, body: bytes | None) -> dict[str, Any]:
        if path.partition("?")[0] == RUNS.path():
            return {"items": list(self.objects.values()), "metadata": {"resourceVersion": "9"}}
        return super()._get(path, body)

    def _patch(self, path: str, body: bytes | None) -> dict[str, Any]:
        patch: dict[str, Any] = msgspec.json.decode(body or b"")
        self._check(path, patch)
        there = self.objects[path]
        return self.put(path, {**there, "metadata": {**there["metadata"], **patch["metadata"]}})


def test_only_the_finalizer_of_jobtree_is_removed() -> None:
    cluster = Cluster()
    held, both, free = (
        cluster.run("held", FINALIZER),
        cluster.run("both", "backup", FINALIZER),
        cluster.run("free", "backup"),
    )
    assert cluster.released() == 2
    assert [cluster.finalizers(path) for path in (held, both, free)] == [[], ["backup"], ["backup"]]
    assert len(cluster.writes) == 2
    assert cluster.released() == 0


def test_run_changed_by_others_is_read_again() -> None:
    cluster = Cluster()
    path = cluster.run("busy", FINALIZER)

    def change_first(_: Request) -> None:
        cluster.before_write = lambda _: None
        cluster.run("busy", FINALIZER, "backup")

    cluster.before_write = change_first
    assert cluster.released() == 1
    assert cluster.finalizers(path) == ["backup"]


def test_run_deleted_meanwhile_is_skipped() -> None:
    cluster = Cluster()
    path = cluster.run("gone", FINALIZER)

    def delete_first(_: Request) -> None:
        cluster.objects.pop(path, None)

    cluster.before_write = delete_first
    cluster.released()
    assert path not in cluster.objects
