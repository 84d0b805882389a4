"""Lotteries with a public beacon: its value is in the record."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import msgspec

from jobtree.core.lottery.resolution_record import Record, verify
from tests.live.cluster.control_plane import ControlPlane
from tests.live.cluster.server_process import wait_until
from tests.live.manager.installation import install, set_policy
from tests.live.manager.manager_process import Manager
from tests.live.manager.tenant import Tenant

VALUE = "0123456789abcdef" * 4
POLICY = """structuralNotice: 8s
minNotice: 8s
maxNotice: 8s
minRuntime: 0s
beacon: {{name: drand, period: 1s, genesis: "2026-01-01T00:00:00Z", url: "{url}"}}
"""


class BeaconHandler(BaseHTTPRequestHandler):
    """A beacon that gives the same value for every round."""

    def do_GET(self) -> None:
        body = json.dumps({"round": int(self.path.rpartition("/")[2]), "randomness": VALUE}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serve_beacon() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), BeaconHandler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/public/{{round}}"
        server.shutdown()


def status_of(tenant: Tenant, reservation: str) -> dict[str, Any]:
    matches = [item for item in tenant.reservations() if item["metadata"]["name"] == reservation]
    return matches[0].get("status", {}) if matches else {}


def test_draw_uses_the_beacon_value_when_the_manager_is_killed_before_the_draw() -> None:
    with serve_beacon() as url, ControlPlane() as plane:
        kubeconfig = install(plane)
        set_policy(plane, POLICY.format(url=url))
        plane.start_controllers()
        tenant = Tenant(plane, plane.start_fake_fleet(), "beacon")
        tenant.add_nodes("nv", 1)
        for team in ("a", "b"):
            tenant.create_budget(team, 16)
        with Manager(plane, kubeconfig) as first:
            tenant.create_run("sits", "a", 8, runtime={"requeue": False})
            tenant.await_running_pods("sits", 1)
            tenant.create_run("newcomer", "b", 8)
            wait_until(lambda: "lottery" in status_of(tenant, "newcomer-1"), "the lottery is held")
            tenant.create_run("late", "a", 8, runtime={"requeue": False})
            wait_until(
                lambda: status_of(tenant, "late-1").get("state") == "Pending", "another Run has a promise"
            )
            first.process.kill()
        with Manager(
            plane, kubeconfig
        ):  # leads when the election Lease of the first one expires; by then the promise is overdue
            wait_until(lambda: "lottery" in status_of(tenant, "late-1"), "the lottery is held")
        for name in ("newcomer-1", "late-1"):
            record = msgspec.convert(status_of(tenant, name)["lottery"], Record)
            assert (record.beacon.name, record.beacon.value, verify(record)) == ("drand", VALUE, [])
