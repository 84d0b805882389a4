"""A cluster with fake nodes on which tests start, kill and disturb managers."""

import subprocess
import sys
from itertools import count
from pathlib import Path

from tests.live.cluster.control_plane import ControlPlane
from tests.live.manager.installation import SHORT_NOTICE_POLICY, install, set_policy
from tests.live.manager.manager_process import Manager
from tests.live.manager.tenant import Tenant
from tests.live.nodes.fake_fleet import FakeFleet
from tests.shown import REPOSITORY

ELECTION_LEASE = "/apis/coordination.k8s.io/v1/namespaces/jobtree-system/leases/jobtree-controller-manager"
AUDIT_OK = "OK: all invariants hold, and all pods match their leases\n"


class FaultCluster:
    """The cluster. It has no manager until a test starts one."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.kubeconfig = install(plane)
        set_policy(plane, SHORT_NOTICE_POLICY)
        plane.start_controllers()
        plane.start_scheduler()
        self.fleet: FakeFleet = plane.start_fake_fleet()
        self._numbers = count(1)

    def next_name(self) -> str:
        return f"c{next(self._numbers)}"

    def create_tenant(self, name: str | None = None) -> Tenant:
        return Tenant(self.plane, self.fleet, name or self.next_name())

    def start_manager(self, *flags: str, kubeconfig: Path | None = None) -> Manager:
        return Manager(self.plane, kubeconfig or self.kubeconfig, *flags)

    def audit(self) -> str:
        """Returns the output of ``kubectl runs audit`` for the whole cluster."""
        command = [sys.executable, "-c", "from jobtree.cli.main import main; main()", "audit"]
        environment = {**self.plane.environment(), "PYTHONPATH": str(REPOSITORY / "src")}
        completed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return completed.stdout + completed.stderr

    def delete_election_lease(self) -> None:
        """Lets another manager lead at once, instead of when the Lease of a killed leader expires."""
        self.plane.rest.delete(ELECTION_LEASE)
