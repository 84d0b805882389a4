"""A whole cluster for people to work on: control plane, fake nodes, the manager, roles as installed."""

from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Self

from tests.live.control_plane import ControlPlane
from tests.live.managing import Manager, Scene, install
from tests.live.person import Person, bind, let_spend


class Stage:
    """Scenes on it are apart from each other: each has a namespace, a flavor and people of its own."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.plane = stack.enter_context(ControlPlane())
            self._kubeconfig = install(self.plane)
            self.plane.start_controllers()
            self.fleet = self.plane.kwok()
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

    def scene(self) -> Scene:
        return Scene(self.plane, self.fleet, f"team{next(self._numbers)}")

    def stranger(self, scene: Scene, directory: Path, name: str = "stranger") -> Person:
        """Somebody whom the cluster knows, and who may do nothing."""
        return Person(self.plane, f"{name}-{scene.name}", scene.name, directory)

    def planner(self, scene: Scene, directory: Path) -> Person:
        """Somebody who may only read: ClusterRole jobtree-planner."""
        person = self.stranger(scene, directory, "planner")
        bind(self.plane, "jobtree-planner", person.name)
        return person

    def researcher(self, scene: Scene, directory: Path) -> Person:
        """Somebody who works in the scene's namespace, and may look at the whole cluster."""
        person = self.stranger(scene, directory, "researcher")
        bind(self.plane, "jobtree-planner", person.name)
        bind(self.plane, "jobtree-researcher", person.name, scene.name)
        let_spend(self.plane, person.name, f"{scene.name}:lab")
        return person
