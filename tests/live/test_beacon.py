"""A public beacon, asked by a real manager: its value is in the record, whoever led when it came."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import msgspec

from jobtree.core.lottery.resolution_record import Record, verify
from tests.live.control_plane import ControlPlane
from tests.live.managing import Manager, Scene, install, set_policy
from tests.live.process import wait_until

VALUE = "0123456789abcdef" * 4
POLICY = """structuralNotice: 8s
minNotice: 8s
maxNotice: 8s
minRuntime: 0s
beacon: {{name: drand, period: 1s, genesis: "2026-01-01T00:00:00Z", url: "{url}"}}
"""


class Relay(BaseHTTPRequestHandler):
    """Every round has the same value, which no real beacon would do."""

    def do_GET(self) -> None:
        body = json.dumps({"round": int(self.path.rpartition("/")[2]), "randomness": VALUE}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def relay() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Relay) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/public/{{round}}"
        server.shutdown()


def status_of(scene: Scene, reservation: str) -> dict[str, Any]:
    found = [one for one in scene.reservations() if one["metadata"]["name"] == reservation]
    return found[0].get("status", {}) if found else {}


def test_the_value_is_drawn_with_also_where_the_manager_dies_before_the_draw() -> None:
    with relay() as url, ControlPlane() as plane:
        kubeconfig = install(plane)
        set_policy(plane, POLICY.format(url=url))
        plane.start_controllers()
        scene = Scene(plane, plane.kwok(), "beacon")
        scene.nodes("nv", 1)
        for team in ("a", "b"):
            scene.budget(team, 16)
        with Manager(plane, kubeconfig) as first:
            scene.run("sits", "a", 8, runtime={"requeue": False})
            scene.await_running("sits", 1)
            scene.run("newcomer", "b", 8)
            wait_until(lambda: "lottery" in status_of(scene, "newcomer-1"), "the lottery is held")
            scene.run("late", "a", 8, runtime={"requeue": False})
            wait_until(lambda: status_of(scene, "late-1").get("state") == "Pending", "another is promised")
            first.process.kill()
        with Manager(
            plane, kubeconfig
        ):  # leads when the first one's lease has run out: the promise is overdue
            wait_until(lambda: "lottery" in status_of(scene, "late-1"), "the lottery is held")
        for name in ("newcomer-1", "late-1"):
            record = msgspec.convert(status_of(scene, name)["lottery"], Record)
            assert (record.beacon.name, record.beacon.value, verify(record)) == ("drand", VALUE, [])
