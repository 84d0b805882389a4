"""A cluster for tests of `kubectl runs`: control plane, fake nodes, the manager and the roles for users."""

from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Self

from tests.live.cli.kubectl_user import KubectlUser
from tests.live.cluster.control_plane import ControlPlane
from tests.live.cluster.rbac import bind_role, grant_spend
from tests.live.manager.installation import install
from tests.live.manager.manager_process import Manager
from tests.live.manager.tenant import Tenant


class UserCluster:
    """The cluster and its manager; creates tenants and their users."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.plane = stack.enter_context(ControlPlane())
            self._kubeconfig = install(self.plane)
            self.plane.start_controllers()
            self.fleet = self.plane.start_fake_fleet()
            self.start_manager()
            stack.callback(self.stop_manager)
            self._stack = stack.pop_all()
        self._numbers = count(1)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start_manager(self) -> None:
        self.manager = Manager(self.plane, self._kubeconfig)

    def stop_manager(self) -> None:
        self.manager.stop()

    def create_tenant(self) -> Tenant:
        return Tenant(self.plane, self.fleet, f"team{next(self._numbers)}")

    def stranger(self, tenant: Tenant, directory: Path, name: str = "stranger") -> KubectlUser:
        """Creates a user without any rights."""
        return KubectlUser(self.plane, f"{name}-{tenant.name}", tenant.name, directory)

    def planner(self, tenant: Tenant, directory: Path) -> KubectlUser:
        """Creates a user who may only read: ClusterRole jobtree-planner."""
        user = self.stranger(tenant, directory, "planner")
        bind_role(self.plane, "jobtree-planner", user.name)
        return user

    def researcher(self, tenant: Tenant, directory: Path) -> KubectlUser:
        """Creates a user who may work in the tenant's namespace and read the whole cluster."""
        user = self.stranger(tenant, directory, "researcher")
        bind_role(self.plane, "jobtree-planner", user.name)
        bind_role(self.plane, "jobtree-researcher", user.name, tenant.name)
        grant_spend(self.plane, user.name, f"{tenant.name}:lab")
        return user
