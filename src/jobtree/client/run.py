"""A Run as its user sees it: described by keyword, YAML or a dict; planned, submitted and followed."""

import threading
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal, Self

import msgspec

from jobtree.api.documents.document_stream import Document, dump_yaml, read_documents
from jobtree.api.kinds.run import RunStatus
from jobtree.api.schema.problems import InputError
from jobtree.api.schema.quantities import SECOND, parse_duration
from jobtree.api.validation.object_parser import parse_object
from jobtree.client.answers.html_tables import html_section, html_table
from jobtree.client.backends.backend import NEVER, Backend, ObjectBody
from jobtree.client.backends.current_backend import current_backend
from jobtree.client.errors import ArgumentError, ConflictError, RunEndedError, WaitTimeoutError
from jobtree.client.plans.explanation import Explanation
from jobtree.client.plans.plan_result import PlanResult
from jobtree.client.run_spec import run_document
from jobtree.core import FINISHED, RunKey

Until = Literal["Running", "Completed", "Finished"]
REACHED: dict[str, tuple[str, ...]] = {
    "Running": ("Running", "Completed"),
    "Completed": ("Completed",),
    "Finished": ("Completed", "Failed"),
}


class Run:
    """A Run: a gang of pods that starts together or not at all.

    ``Run("train", owner="org:ai:research", gpu_type="H100-80GB", gpus=16, checkpoint="10m")`` describes one.
    The keywords are those of the manifest in snake_case, without their groups: ``group_gpus`` is
    ``spec.locality.groupGPUs``. What has no keyword of its own is given in ``spec``, as in a manifest. A
    description that breaks a rule is refused at once, with the field, the value and the rule.

    It works on the cluster of the ``with jobtree.cluster(…)`` block that it is used in, else on that of
    ``JOBTREE_STATE`` or of the kubeconfig. A Run that was read from a cluster stays with it.
    """

    def __init__(  # noqa: PLR0913  one for each field of a manifest
        self,
        name: str,
        *,
        owner: str,
        gpus: int | None = None,
        gpu_type: str | None = None,
        namespace: str = "",
        gpus_per_pod: int | None = None,
        group_gpus: int | None = None,
        checkpoint: str | None = None,
        max_duration: str | None = None,
        min_gpus: int | None = None,
        max_gpus: int | None = None,
        step_gpus: int | None = None,
        spares: int | None = None,
        allow_borrow: bool = False,
        max_borrow_gpus: int | None = None,
        sponsors: tuple[str, ...] = (),
        allow_opportunistic: bool = False,
        after: tuple[str, ...] = (),
        template: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        spec: Mapping[str, Any] | None = None,
    ) -> None:
        fields = {field: value for field, value in locals().items() if field not in ("self", "__class__")}
        self.body = checked(run_document(**fields), "jobtree.Run")
        self.backend: Backend | None = None

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], *, where: str = "dict") -> Self:
        """Returns the Run of a manifest as a dict; ``where`` names it in refusals."""
        if document.get("kind") != "Run":
            raise InputError(where, [f"kind: must be Run, but is {document.get('kind')}"])
        return cls.of(checked(dict(document), where), None)

    @classmethod
    def from_yaml(cls, text: str, *, where: str = "YAML") -> Self:
        """Returns the Run of a manifest in YAML or JSON, which has one Run and nothing else."""
        documents = read_documents(text, where)
        if len(documents) != 1:
            raise InputError(where, [f"must have one Run, but has {len(documents)} objects"])
        return cls.from_dict(documents[0].body, where=documents[0].where)

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Returns the Run of a manifest in a file."""
        return cls.from_yaml(Path(path).read_text(encoding="utf-8"), where=str(path))

    @classmethod
    def of(cls, body: ObjectBody, backend: Backend | None) -> Self:
        """Returns the Run of an object that was read from a cluster."""
        run = cls.__new__(cls)
        run.body, run.backend = body, backend
        return run

    @property
    def name(self) -> str:
        name: str = self.body["metadata"]["name"]
        return name

    @property
    def namespace(self) -> str:
        """Its namespace; empty if it names none and was not submitted yet."""
        return str(self.body["metadata"].get("namespace", ""))

    @property
    def uid(self) -> str:
        """Its UID; empty if it was not submitted yet."""
        return str(self.body["metadata"].get("uid", ""))

    @property
    def owner(self) -> str:
        return str(self.body["spec"]["owner"])

    @property
    def spec(self) -> dict[str, Any]:
        """A copy of its spec, as in a manifest."""
        return deepcopy(dict(self.body["spec"]))

    def to_dict(self) -> dict[str, Any]:
        """Returns the whole object as it was described or read last."""
        return deepcopy(self.body)

    def to_yaml(self) -> str:
        """Returns the manifest: the object without its status."""
        return dump_yaml([{field: value for field, value in self.body.items() if field != "status"}])

    @property
    def status(self) -> RunStatus:
        """Its status, read now: ``run.status.phase``, ``run.status.message``, ``run.status.width``."""
        return status_of(self.refresh().body)

    def refresh(self) -> Self:
        """Reads the Run again. Raises NotFoundError if it is gone, ConflictError if it is another one."""
        body = self._submitted().run(self._title())
        if body["metadata"]["uid"] != self.uid:
            raise ConflictError(f"{self._title()} was deleted and created again: read it with jobtree.run")
        self.body = body
        return self

    def plan(self) -> PlanResult:
        """Tells where it would start and who pays, or why it waits and what would help. Changes nothing."""
        cluster = self._backend()
        if not self.uid:
            return cluster.what_if([Document(f"Run {self.name}", self._new_document(cluster))])
        snapshot = cluster.snapshot(pods=True)
        return PlanResult(snapshot, [cluster.names.choose(self._title(), list(snapshot.world.runs))], [])

    def submit(self, *, replace: bool = False, dry_run: bool = False) -> Self:
        """Creates it; with ``replace``, changes the spec of the one that exists. Returns it as decided.

        With ``dry_run`` the cluster only says whether it would accept it.
        """
        cluster = self._backend()
        document = Document(f"Run {self.name}", self._new_document(cluster))
        (body,) = cluster.create([document], replace=replace, dry_run=dry_run)
        if not dry_run:
            self.body, self.backend = body, cluster
        return self

    def wait(
        self, until: Until = "Running", timeout: float | str | None = None, *, stop: threading.Event = NEVER
    ) -> Self:
        """Waits until it runs, is Completed, or is Finished (Completed or Failed).

        ``timeout`` is in seconds, or a duration such as ``"2h"``. Raises WaitTimeoutError when it is over and
        RunEndedError if the Run failed or was deleted. On a simulated cluster the clock moves meanwhile, for
        30 days at most.
        Another thread may set ``stop`` to end the wait.
        """
        if until not in REACHED:
            raise ArgumentError(f"until={until!r}: must be one of {', '.join(REACHED)}")
        cluster, key = self._submitted(), self._key()
        body = cluster.wait(key, self._is_done(until), seconds_of(timeout), stop)
        if body is None or body["metadata"]["uid"] != self.uid:
            raise RunEndedError(f"{self._title()} was deleted", self._title(), "", until)
        self.body = body
        phase = phase_of(body)
        if phase in REACHED[until]:
            return self
        if phase in FINISHED:
            message = body["status"].get("message", "")
            raise RunEndedError(f"{self._title()} is {phase}: {message}", self._title(), phase, until)
        limit = f" after {timeout}" if timeout is not None else ""
        message = f"{self._title()} is {phase} and not {until}{limit}"
        raise WaitTimeoutError(message, self._title(), phase, until)

    def _is_done(self, until: Until) -> Callable[[ObjectBody | None], bool]:
        phases = {*REACHED[until], *FINISHED}
        return lambda body: body is None or body["metadata"]["uid"] != self.uid or phase_of(body) in phases

    def explain(self) -> Explanation:
        """Returns its history: why it is as it is, what it held, who paid, risks and lotteries."""
        cluster = self._submitted()
        snapshot = cluster.snapshot()
        key = cluster.names.choose(self._title(), list(snapshot.world.runs))
        return Explanation(snapshot, snapshot.world.runs[key])

    def logs(self, rank: int = 0, *, follow: bool = False, container: str = "") -> Iterator[str]:
        """Yields the lines of a rank's log; with ``follow``, as they come, until its container ends."""
        return self._submitted().log(self._title(), rank, container, follow=follow)

    def shrink(self, by: int | None = None, *, to: int | None = None) -> Self:
        """Gives up GPUs of a malleable Run: a number of them, or all above a width."""
        return self._resize(-1, by, to)

    def grow(self, by: int | None = None, *, to: int | None = None) -> Self:
        """Lets a malleable Run grow, as GPUs and budget allow."""
        return self._resize(1, by, to)

    def _resize(self, sign: int, by: int | None, to: int | None) -> Self:
        if (by is None) == (to is None):
            raise ArgumentError("give either by=N or to=N")
        self.body = self._submitted().resize(self._title(), sign, by, to)
        return self

    def cancel(self) -> None:
        """Deletes it, if it is still the one that was submitted. Its leases close and stay in the ledger."""
        self._submitted().delete(self.body)

    def row(self) -> dict[str, Any]:
        """Returns what a table of Runs shows of it, as it was read last."""
        status = self.body.get("status") or {}
        width = status.get("width") or {}
        return {
            "namespace": self.namespace,
            "name": self.name,
            "owner": self.owner,
            "phase": phase_of(self.body),
            "gpus": width.get("allocated", 0),
            "desired": width.get("desired", 0),
            "reason": status.get("reason", ""),
            "start": status.get("earliestStart"),
            "message": status.get("message", ""),
        }

    def _backend(self) -> Backend:
        return self.backend or current_backend()

    def _submitted(self) -> Backend:
        if self.backend is None:
            raise ConflictError(f"Run {self.name} was not submitted yet")
        return self.backend

    def _new_document(self, cluster: Backend) -> ObjectBody:
        document = deepcopy({field: self.body[field] for field in ("apiVersion", "kind", "spec")})
        metadata = self.body["metadata"]
        kept = ("name", "namespace", "labels", "annotations")
        document["metadata"] = {field: deepcopy(metadata[field]) for field in kept if metadata.get(field)}
        document["metadata"].setdefault("namespace", cluster.default_namespace)
        return document

    def _key(self) -> RunKey:
        return self.namespace, self.name

    def _title(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def __repr__(self) -> str:
        phase = phase_of(self.body) if self.uid else "not submitted"
        return f"<Run {self._title()}: {phase}>"

    def _repr_html_(self) -> str:
        row = self.row()
        return html_section(repr(self), [html_table(list(row), [list(row.values())])])


def checked(document: ObjectBody, where: str) -> ObjectBody:
    """Returns a copy of a manifest. Raises InputError with every rule that it breaks."""
    parse_object(deepcopy(document), where)
    return deepcopy(document)


def phase_of(body: ObjectBody) -> str:
    return str((body.get("status") or {}).get("phase") or "Pending")


def status_of(body: ObjectBody) -> RunStatus:
    """Returns the status; fields that this version does not know are left out."""
    raw = body.get("status") or {}
    known = {field.encode_name for field in msgspec.structs.fields(RunStatus)}
    return msgspec.convert({name: value for name, value in raw.items() if name in known}, RunStatus)


def seconds_of(timeout: float | str | None) -> float | None:
    if not isinstance(timeout, str):
        return timeout
    try:
        return parse_duration(timeout) / SECOND
    except ValueError as error:
        raise ArgumentError(f"timeout={timeout!r}: {error}") from None
