"""What a cluster must be able to do for the library; documents go in and come out."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jobtree.api.documents.document_stream import Document
from jobtree.client.plans.plan_result import PlanResult
from jobtree.client.source.archive_access import ArchivedLeases
from jobtree.client.source.name_lookup import Names
from jobtree.core import RunKey
from jobtree.snapshot.cluster import Cluster

ObjectBody = dict[str, Any]
NEVER = threading.Event()  # is never set: nobody ends the wait


class Backend(ABC):
    """A cluster, live or simulated."""

    title: str

    @property
    @abstractmethod
    def names(self) -> Names:
        """Where names without a namespace are looked up."""

    @property
    @abstractmethod
    def default_namespace(self) -> str:
        """The namespace of a new Run that names none."""

    @abstractmethod
    def snapshot(self, *, pods: bool = False) -> Cluster:
        """Returns the cluster held in memory, for reading; pods count where free GPUs matter."""

    @abstractmethod
    def objects(self, kind: str, namespace: str = "") -> list[ObjectBody]:
        """Returns all objects of a kind, with their present status."""

    @abstractmethod
    def run(self, name: str) -> ObjectBody:
        """Returns the Run that a name means. Raises NotFoundError."""

    @abstractmethod
    def what_if(self, documents: list[Document]) -> PlanResult:
        """Plans as if these objects were created."""

    @abstractmethod
    def create(self, documents: Sequence[Document], *, replace: bool, dry_run: bool) -> list[ObjectBody]:
        """Creates or replaces objects, and returns them with the decision about each Run."""

    @abstractmethod
    def resize(self, name: str, sign: int, by: int | None, width: int | None) -> ObjectBody:
        """Sets the desired width of a Run."""

    @abstractmethod
    def delete(self, body: ObjectBody) -> None:
        """Deletes a Run if it is still the one that was read."""

    @abstractmethod
    def wait(
        self,
        run_key: RunKey,
        is_done: Callable[[ObjectBody | None], bool],
        seconds: float | None,
        stop: threading.Event = NEVER,
    ) -> ObjectBody | None:
        """Returns the Run (None: it is gone) once it is done, or as it is when the time is over."""

    @abstractmethod
    def log(self, name: str, rank: int, container: str, *, follow: bool) -> Iterator[str]:
        """Yields the lines of a rank's log."""

    @abstractmethod
    def archived(self, since: int) -> ArchivedLeases:
        """Returns archived leases that may overlap the time from this instant on."""

    @abstractmethod
    def close(self) -> None:
        """Closes connections, if there are any."""
