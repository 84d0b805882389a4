"""Keeping pods as decided: what must be there is made, what must not is ended.

Pods are made on their node once its GPUs are physically free: those that were there before get their grace
period, and are waited for. A new attempt begins when the last of the old one is gone, so a hostname never
has two pods. A pod on a node that has failed is waited for by nobody.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec

from jobtree.api.kinds.policy import Policy
from jobtree.api.kinds.run import Run
from jobtree.kube.http import api_requests
from jobtree.kube.http.api_errors import CONFLICT, NOT_FOUND, FencedError, KubeError, StatusError
from jobtree.kube.http.api_requests import Preconditions
from jobtree.kube.http.api_resources import PODS, SERVICES
from jobtree.kube.installation import ATTEMPT_LABEL
from jobtree.kube.watch.object_decoder import RISK, LivePod
from jobtree.kube.watch.object_store import Change, ObjectHead, StoredObject
from jobtree.kube.write.object_writer import AT_ONCE, Writer
from jobtree.manager.cluster_view import ClusterView
from jobtree.manager.controllers.observed_pods import FINISHED, ObservedPods
from jobtree.manager.decisions.pod_outcomes import PodOutcome, RankLost
from jobtree.manager.decisions.write_set import DesiredPods, EventNote
from jobtree.manager.log import Log, log_fields
from jobtree.manager.pods.pod_documents import (
    ObjectBody,
    PodDefaults,
    pod_document,
    risk_text,
    service_document,
)
from jobtree.manager.pods.pod_names import pod_name
from jobtree.manager.pods.pod_set import NO_PODS, PodPlacement
from jobtree.manager.pods.rank_environment import needs_service

RETRY_MS = 5_000
LARGE_BYTES = 64 * 1024  # of a template
LARGE_AT_ONCE = 2  # a server that is given many large pods at once has no time for anybody else
UNSTUCK = "mend what it needs, or cancel the Run and submit it with another template"


class UnfitTemplateError(Exception):
    """What a Run says of its pods cannot be made into one."""


def is_passing(refused: Exception) -> bool:
    """Whether asking again, as it is, may help: the server was busy, or this process may not write."""
    if isinstance(refused, StatusError):
        return refused.is_passing or refused.lacks_right or refused.code in (NOT_FOUND, CONFLICT)
    return isinstance(refused, KubeError)


def is_large(run: Run) -> bool:
    template = run.spec.template
    return template is not None and len(msgspec.json.encode(template)) > LARGE_BYTES


class CreatedPod(NamedTuple):
    """A pod that the server says it made; ``lost`` is what is told should it be gone before it is seen."""

    uid: str
    run: str
    lost: RankLost | None


class PodReconciler:
    def __init__(
        self, writer: Writer, view: ClusterView, log: Log, clock: Callable[[], int], wake: Callable[[], None]
    ) -> None:
        self._writer = writer
        self._view = view
        self._log = log
        self._clock = clock
        self._wake = wake
        self.roster = ObservedPods()
        self._companies: dict[str, DesiredPods] = {}
        self._touched: set[str] = set()  # Runs whose pods are to be looked at
        self._unheard: set[str] = set()  # Runs whose pods may have something to tell
        self._asked: set[str] = set()  # pods that we have asked to go
        self._served: set[str] = set()  # Runs whose Service is there
        self._retry_at: dict[str, int] = {}  # Runs whose pods could not be made
        self._waiting: set[str] = set()  # Runs whose pods wait for room
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._large_turns = asyncio.Semaphore(LARGE_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._told: list[PodOutcome] = []
        self._made: dict[tuple[str, str], CreatedPod] = {}  # pods that were made and not seen yet
        self._notes: list[EventNote] = []
        self._noted: set[tuple[str, str]] = set()

    def set_desired(self, companies: dict[str, DesiredPods]) -> None:
        self._companies.update(companies)
        self._touched |= companies.keys()
        self._unheard |= companies.keys()
        for uid in companies:
            self.roster.clear_reported(uid)

    def restart(self) -> None:
        """The model is built anew: what it does not name again is wanted no more."""
        self._companies.clear()
        self._touched |= self.roster.runs
        self.roster.clear_reported(*self.roster.runs)

    def handle_changes(self, changes: Iterable[Change[LivePod]]) -> None:
        changed = list(changes)
        runs = self.roster.handle_changes(changed)
        self._touched |= runs
        self._unheard |= runs
        for change in changed:
            if change.after is not None:
                self._made.pop((change.after.namespace, change.after.name), None)
            elif change.before is not None:
                self._asked.discard(change.before.uid)
        self._record_deleted()
        if changed:
            self._touched |= self._waiting

    def _record_deleted(self) -> None:
        """Pods that came and went before anybody looked: no change tells of them."""
        for key, made in list(self._made.items()):
            if self._view.pods.get(made.uid) is None:
                del self._made[key]
                self.roster.forget_expected(key)
                self._touched.add(made.run)
                if made.lost is not None:
                    self._told.append(made.lost)

    def outcomes(self) -> list[PodOutcome]:
        """What the pods tell, of Runs whose pods changed or should have."""
        told, self._told = self._told, []
        for uid in sorted(self._unheard & self._companies.keys()):
            told += self.roster.outcomes(uid, self._companies[uid], self._clock(), self._asked)
        self._unheard = set()
        return told

    @property
    def has_outcomes(self) -> bool:
        """Whether pods may have something to tell that nobody has heard yet."""
        return bool(self._told or (self._unheard and self._unheard & self.roster.runs))

    def event_notes(self) -> list[EventNote]:
        """What users should know of pods that could not be made."""
        notes, self._notes = self._notes, []
        return notes

    def next_retry_at(self) -> int | None:
        return min(self._retry_at.values(), default=None)

    def start_reconciling(self) -> None:
        """Begin all that is to be done for the pods of Runs that changed; it goes on by itself."""
        now = self._clock()
        due = {uid for uid, at in self._retry_at.items() if at <= now}
        for uid in due:
            del self._retry_at[uid]
        touched, self._touched = self._touched | due, set()
        for uid in sorted(touched):
            self._waiting.discard(uid)
            company = self._companies.get(uid)
            if company is None:
                company = self._handle_unknown_run(uid)
            if company is not None:
                self._reconcile(uid, company, now)

    async def drain(self) -> None:
        """Until everything that was begun has ended."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _handle_unknown_run(self, uid: str) -> DesiredPods | None:
        """Pods of a Run that holds nothing: whoever made them, they go, if the Run is there to say so."""
        held = self._view.runs.get(uid)
        return DesiredPods(held.value, NO_PODS) if held is not None else None

    # One Run

    def _reconcile(self, uid: str, company: DesiredPods, now: int) -> None:
        name = company.run.metadata.name
        wanted = {pod_name(name, uid, place.part): place for place in company.cast.places}
        pods = self.roster.pods_of(company.run)
        stale = [held for held in pods.values() if not self._belongs(held, wanted)]
        blocking = [held for held in stale if not self._may_stay(held, wanted, company)]
        for held in blocking:
            self._end(held)
        self._warn(company, [held for held in pods.values() if held not in stale])
        for held in pods.values():
            if held.value.stuck:
                said = f"pod {held.name} does not start, and keeps its GPUs: {held.value.stuck} ({UNSTUCK})"
                self._record_note(uid, "PodStuck", said, held.value.stuck.partition(":")[0])
        missing = [(pod, place) for pod, place in wanted.items() if pod not in pods]
        if missing:
            waits_for = [held for held in blocking if not self._is_lost(held.value.pod.node)]
            self._create_pods(uid, company, missing, now, drains=bool(waits_for))
        elif not wanted and not pods:
            self._forget(uid)

    def _belongs(self, held: StoredObject[LivePod], wanted: dict[str, PodPlacement]) -> bool:
        place = wanted.get(held.name)
        if place is None or not place.is_at(held.value.pod.node):
            return False
        return place.is_rank or held.value.phase not in FINISHED

    def _may_stay(
        self, held: StoredObject[LivePod], wanted: dict[str, PodPlacement], company: DesiredPods
    ) -> bool:
        """Ranks that have ended stay to be looked at, as long as they are of this attempt or the last one."""
        if held.value.phase not in FINISHED or held.name in wanted:
            return False
        attempt = held.value.labels.get(ATTEMPT_LABEL, "")
        return company.cast == NO_PODS or (attempt.isdecimal() and int(attempt) >= company.cast.attempt - 1)

    def _end(self, held: StoredObject[LivePod]) -> None:
        lost = self._is_lost(held.value.pod.node)
        if held.value.deleted is not None and (held.uid in self._asked or not lost):
            return
        if held.uid in self._asked:
            return
        self._asked.add(held.uid)
        self._begin(self._delete(held, 0 if lost else None))

    async def _delete(self, held: StoredObject[LivePod], grace_seconds: int | None) -> None:
        try:
            await self._writer.delete(PODS, Preconditions(held.name, held.namespace, held.uid), grace_seconds)
        except KubeError as refused:
            self._asked.discard(held.uid)
            self._later(held.value.run_uid, "a pod could not be ended", held.name, refused)

    def _is_lost(self, node: str) -> bool:
        """Whether nobody on that node will ever end a pod."""
        if not node:
            return False  # the scheduler has not placed it yet
        held = self._view.nodes.named(node)
        if held is None or held.value.node.failed:
            return True
        since = held.value.node.not_ready_since_ms
        return since is not None and since + self._policy().node_grace_ms <= self._clock()

    def _warn(self, company: DesiredPods, pods: list[StoredObject[LivePod]]) -> None:
        """Tell running ranks of their risk (R11)."""
        text = risk_text(company.risks)
        for held in pods:
            if held.value.phase == "Running" and held.value.risk not in ("", text):
                self._begin(self._annotate(held, text))

    async def _annotate(self, held: StoredObject[LivePod], text: str) -> None:
        patch = {"metadata": {"annotations": {RISK: text}}}
        try:
            seen = Preconditions(held.name, held.namespace, held.uid)
            self._view.pods.apply_response(
                await self._writer.write(api_requests.merge_patch(PODS, seen, patch))
            )
        except StatusError as refused:
            self._log.say("binder", "a pod could not be warned", pod=held.name, why=str(refused))

    # New pods

    def _create_pods(
        self,
        uid: str,
        company: DesiredPods,
        missing: list[tuple[str, PodPlacement]],
        now: int,
        *,
        drains: bool,
    ) -> None:
        if self._view.runs.get(uid) is None:
            return  # it is gone, and what it had goes with it
        if company.resume_at > now:
            self._retry_at[uid] = company.resume_at
            return
        ready = [] if drains or uid in self._retry_at else list(self._placeable(company.run, missing))
        if len(ready) < len(missing):
            self._waiting.add(uid)
        if ready:
            self._begin(self._create_all(uid, company, ready))

    def _placeable(
        self, run: Run, missing: list[tuple[str, PodPlacement]]
    ) -> Iterator[tuple[str, PodPlacement]]:
        """Those for which there is room; the room is theirs from now on."""
        for name, place in missing:
            key = (run.metadata.namespace, name)
            held = self._view.nodes.named(place.node)
            if self.roster.is_expected(key) or (place.node and held is None):
                continue
            if held is None or self.roster.used(place.node) + place.gpus <= held.value.node.gpus:
                self.roster.expect_pod(key, place.node, place.gpus)
                yield name, place

    async def _create_all(
        self, uid: str, company: DesiredPods, ready: list[tuple[str, PodPlacement]]
    ) -> None:
        try:
            if uid not in self._served and needs_service(company.run, company.cast):
                await self._writer.create(SERVICES, service_document(company.run))
            self._served.add(uid)
        except KubeError as refused:
            for name, _ in ready:
                self.roster.forget_expected((company.run.metadata.namespace, name))
            self._later(uid, "a Service could not be made", company.run.metadata.name, refused)
            return
        turns = self._large_turns if is_large(company.run) else self._turns
        await asyncio.gather(*(self._create(uid, company, name, place, turns) for name, place in ready))

    async def _create(
        self, uid: str, company: DesiredPods, name: str, place: PodPlacement, turns: asyncio.Semaphore
    ) -> None:
        key = (company.run.metadata.namespace, name)
        try:
            async with turns:  # thousands may wait: a pod is written down when it is its turn
                answer = await self._writer.create(PODS, self._document(company, place))
        except (KubeError, UnfitTemplateError) as refused:
            self.roster.forget_expected(key)
            if place.is_rank and not is_passing(refused):
                self._told.append(self._rank_lost(company, place, str(refused)[:400], failed=True))
            self._later(uid, "a pod could not be made", name, refused)
            return
        lost = self._rank_lost(company, place, "its pod was deleted", failed=False) if place.is_rank else None
        self._made[key] = CreatedPod(msgspec.json.decode(answer, type=ObjectHead).metadata.uid, uid, lost)
        self._view.pods.apply_response(answer)
        if self._view.pods.get(self._made[key].uid) is None:
            self._wake()  # it was deleted before the answer came

    def _rank_lost(
        self, company: DesiredPods, place: PodPlacement, message: str, *, failed: bool
    ) -> RankLost:
        metadata = company.run.metadata
        seat = (place.group, place.group_rank)
        run_key = (metadata.namespace, metadata.name)
        return RankLost(run_key, metadata.uid, company.cast.attempt, self._clock(), seat, failed, message)

    def _document(self, company: DesiredPods, place: PodPlacement) -> ObjectBody:
        """The pod for one place. Raises UnfitTemplateError where nothing says what to run, or not rightly."""
        policy, run = self._policy(), company.run
        held = self._view.nodes.named(place.node)
        resource = held.value.node.gpu_resource if held is not None else "nvidia.com/gpu"
        template = run.spec.template or policy.default_template
        if template is None:
            raise UnfitTemplateError(
                "spec.template is absent, and the policy has no defaultTemplate: what to run?"
            )
        setting = PodDefaults(template, resource, policy.max_grace_ms)
        try:
            return pod_document(run, company.cast, place, setting, company.risks)
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as broken:
            raise UnfitTemplateError(f"spec.template cannot be made into a pod: {broken}") from None

    # Parts

    def _policy(self) -> Policy:
        return next((held.value for held in self._view.policy), Policy())

    def _later(self, uid: str, what: str, name: str, refused: Exception) -> None:
        if not isinstance(refused, FencedError):
            self._log.say("binder", what, name=name, **log_fields(refused))
            self._record_note(uid, "PodRefused", f"{what}: {refused}")
        self._retry_at[uid] = self._clock() + RETRY_MS
        self._touched.add(uid)
        self._wake()

    def _record_note(self, uid: str, reason: str, message: str, kind: str = "") -> None:
        """Once for every message, or for every ``kind`` of them: a gang's pods have the same trouble."""
        held, what = self._view.runs.get(uid), kind or message
        if held is not None and (uid, what) not in self._noted:
            self._noted.add((uid, what))
            self._notes.append(EventNote(held.value, reason, message, self._clock(), warning=True))

    def _forget(self, uid: str) -> None:
        if self._view.runs.get(uid) is None:
            self._companies.pop(uid, None)
            self._served.discard(uid)
            self._noted = {noted for noted in self._noted if noted[0] != uid}
            self.roster.forget_run(uid)

    def _begin(self, doing: Awaitable[None]) -> None:
        task = asyncio.ensure_future(doing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
