"""Creates and deletes pods until they match the desired pods of each Run.

A pod is created once the GPUs of its node are physically free: pods that are stopping have their grace period
first. A new attempt begins when the last pod of the old attempt is gone, so no hostname belongs to two pods.
Pods on a failed node are not waited for.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec

from jobtree.api.kinds.policy import Policy
from jobtree.api.kinds.run import Run
from jobtree.api.kubernetes.pod_binding import choose_binding
from jobtree.api.schema.quantities import MINUTE, parse_time
from jobtree.kube.http import api_requests
from jobtree.kube.http.api_errors import CONFLICT, FencedError, KubeError, StatusError
from jobtree.kube.http.api_requests import Preconditions
from jobtree.kube.http.api_resources import PODS, SERVICES
from jobtree.kube.installation import ATTEMPT_LABEL
from jobtree.kube.watch.object_decoder import RISK, LivePod
from jobtree.kube.watch.object_store import Change, ObjectHead, StoredObject
from jobtree.kube.write.fair_slots import FairSlots
from jobtree.kube.write.object_writer import AT_ONCE, Writer
from jobtree.manager.cluster_view import ClusterView
from jobtree.manager.controllers.observed_pods import FINISHED, ObservedPods
from jobtree.manager.controllers.refused_pods import RefusedPodTracker
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
from jobtree.manager.pods.pod_names import pod_name, service_name
from jobtree.manager.pods.pod_set import NO_PODS, PodPlacement
from jobtree.manager.pods.rank_environment import needs_service

RETRY_MS = 5_000
LARGE_BYTES = 64 * 1024  # of a template
LARGE_AT_ONCE = 2  # many large pods at once would keep the API server from other requests
UNSTUCK = "repair what it needs, or cancel the Run and submit it with another template"
PRIORITY_CLASS = "jobtree-rank"  # it comes with the manifests
HANGS_MS = 2 * MINUTE  # after its grace period, until a new attempt does not wait for a pod any more


class UnfitTemplateError(Exception):
    """No pod can be built from the template of a Run."""


def is_refusal(refused: Exception) -> bool:
    """Whether the server, or the template, refuses this pod; otherwise the server was busy."""
    if isinstance(refused, StatusError):
        is_busy = refused.is_passing or (refused.code == CONFLICT and not refused.exists_already)
        return not is_busy
    return not isinstance(refused, KubeError)


def is_large(run: Run) -> bool:
    template = run.spec.template
    return template is not None and template.size > LARGE_BYTES


async def wait_for_nothing(_: str) -> None:
    """Returns at once."""


class CreatedPod(NamedTuple):
    """A pod that the server has created. ``lost`` is reported if the pod is gone before it is seen."""

    uid: str
    run: str
    lost: RankLost | None


class PodReconciler:
    def __init__(  # noqa: PLR0913  where to write, what to know, whom to wake
        self,
        writer: Writer,
        view: ClusterView,
        log: Log,
        clock: Callable[[], int],
        wake: Callable[[], None],
        *,
        leaves_out: Callable[[str], bool] = lambda _: False,
        leases_written: Callable[[str], Awaitable[None]] = wait_for_nothing,
    ) -> None:
        self._leases_written = leases_written  # waits for the leases of a Run, by its UID
        self._leaves_out = leaves_out  # whether planning leaves a Run out, by its UID: its pods stay
        self._writer = writer
        self._view = view
        self._log = log
        self._clock = clock
        self._wake = wake
        self.observed_pods = ObservedPods(lambda uid: view.runs.get(uid) is not None)
        self._refused_pods = RefusedPodTracker(self.observed_pods, self._gpus_of_node)
        self._desired: dict[str, DesiredPods] = {}
        self._failed_nodes: frozenset[str] = frozenset()  # that still exist
        self._priority_class = PRIORITY_CLASS  # empty: the cluster does not have it
        self._touched: set[str] = set()  # Runs whose pods are to be reconciled
        self._unchecked: set[str] = set()  # Runs whose pods may have an outcome
        self._deleting: set[str] = set()  # UIDs of pods that were deleted by this manager and are still there
        self._with_service: set[str] = set()  # Runs that have their Service
        self._retry_at: dict[str, int] = {}  # by UID of the Run
        self._waiting: set[str] = set()  # Runs with pods that wait for room on a node
        self._slots = FairSlots(AT_ONCE)
        self._slots_of_large_pods = FairSlots(LARGE_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._outcomes: list[PodOutcome] = []
        self._created: dict[tuple[str, str], CreatedPod] = {}  # pods that were created and not seen yet
        self._event_notes: list[EventNote] = []
        self._noted_messages: set[tuple[str, str]] = set()

    def set_desired(
        self, desired_pods: dict[str, DesiredPods], failed_nodes: frozenset[str] = frozenset()
    ) -> None:
        self._failed_nodes = failed_nodes
        self._desired.update(desired_pods)
        self._touched |= desired_pods.keys()
        self._unchecked |= desired_pods.keys()
        for uid, desired in desired_pods.items():
            self.observed_pods.clear_reported(uid)
            self._refused_pods.set_known(uid, desired)

    def restart(self) -> None:
        """Forgets all desired pods: the model is built again, and names those that are still desired."""
        self._desired.clear()
        self._touched |= self.observed_pods.runs
        self.observed_pods.clear_reported(*self.observed_pods.runs)

    def handle_changes(self, changes: Iterable[Change[LivePod]]) -> None:
        changed = list(changes)
        runs = self.observed_pods.handle_changes(changed)
        self._touched |= runs
        self._unchecked |= runs
        for change in changed:
            if change.after is not None:
                self._created.pop((change.after.namespace, change.after.name), None)
            elif change.before is not None:
                self._deleting.discard(change.before.uid)
        self._record_deleted()
        if changed:
            self._touched |= self._waiting

    def handle_service_changes(self, changes: Iterable[Change[str]]) -> None:
        """Has a Service made again that somebody deleted (H3)."""
        for change in changes:
            run_uid = change.before.value if change.before is not None and change.after is None else ""
            if run_uid in self._desired:
                self._with_service.discard(run_uid)
                self._touched.add(run_uid)

    def _record_deleted(self) -> None:
        """Records created pods that were deleted before they were seen, for which there is no change."""
        for key, created in list(self._created.items()):
            if self._view.pods.get(created.uid) is None:
                del self._created[key]
                self.observed_pods.forget_expected(key)
                self._touched.add(created.run)
                if created.lost is not None:
                    self._outcomes.append(created.lost)

    def outcomes(self) -> list[PodOutcome]:
        """Returns the outcomes of Runs whose pods or desired pods changed."""
        outcomes, self._outcomes = self._outcomes, []
        now, grace = self._clock(), self._policy().placement_grace_ms
        due = self._refused_pods.take_due(now)
        self._touched |= due
        for uid in sorted((self._unchecked | due) & self._desired.keys()):
            desired = self._desired[uid]
            outcomes += self.observed_pods.outcomes(uid, desired, now, self._deleting)
            refused = self._refused_pods.report(uid, desired, now, grace)
            outcomes += [refused] if refused is not None else []
        self._unchecked = set()
        return outcomes

    @property
    def has_outcomes(self) -> bool:
        """Whether ``outcomes`` may return something."""
        return bool(self._outcomes or (self._unchecked and self._unchecked & self.observed_pods.runs))

    def event_notes(self) -> list[EventNote]:
        """Returns Events about pods that are stuck or could not be created."""
        event_notes, self._event_notes = self._event_notes, []
        return event_notes

    def next_retry_at(self) -> int | None:
        looks = self._refused_pods.next_look_at()
        return min([*self._retry_at.values(), *([] if looks is None else [looks])], default=None)

    def start_reconciling(self) -> None:
        """Starts the writes for all Runs whose pods may differ; does not wait for them."""
        now = self._clock()
        due = {uid for uid, at in self._retry_at.items() if at <= now}
        for uid in due:
            del self._retry_at[uid]
        touched, self._touched = self._touched | due, set()
        for uid in sorted(touched):
            self._waiting.discard(uid)
            desired = self._desired.get(uid)
            if desired is None:
                desired = self._handle_unknown_run(uid)
            if desired is not None:
                self._reconcile(uid, desired, now)

    async def drain(self) -> None:
        """Waits until all writes that were started have ended."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _handle_unknown_run(self, uid: str) -> DesiredPods | None:
        """A Run that the model does not know has no pods, if it exists and is not left out."""
        run = self._view.runs.get(uid) if not self._leaves_out(uid) else None
        return DesiredPods(run.value, NO_PODS) if run is not None else None

    # One Run

    def _reconcile(self, uid: str, desired: DesiredPods, now: int) -> None:
        run_name = desired.run.metadata.name
        placements = {
            pod_name(run_name, uid, placement.part): placement for placement in desired.pod_set.placements
        }
        pods = self.observed_pods.pods_of(desired.run)
        stale = [pod for pod in pods.values() if not self._belongs(uid, pod, placements, now)]
        blocking = [pod for pod in stale if not self._may_stay(pod, placements, desired)]
        for pod in blocking:
            self._delete_pod(pod)
        self._update_risk_annotations(desired, [pod for pod in pods.values() if pod not in stale])
        for pod in pods.values():
            if pod.value.stuck:
                message = f"pod {pod.name} does not start: {pod.value.stuck} ({UNSTUCK})"
                self._record_note(uid, "PodStuck", message, pod.value.stuck.partition(":")[0])
        missing = [(name, placement) for name, placement in placements.items() if name not in pods]
        if missing:
            waits_for = [pod for pod in blocking if self._is_waited_for(pod.value, now)]
            self._create_pods(uid, desired, missing, now, drains=bool(waits_for))
        elif not placements and not pods:
            self._forget(uid)
        elif placements and self._lacks_service(uid, desired):
            self._start_task(self._create_all(uid, desired, []))

    def _lacks_service(self, uid: str, desired: DesiredPods) -> bool:
        """Whether the Service of a Run is missing; not while its creation is retried later."""
        return (
            uid not in self._with_service
            and uid not in self._retry_at
            and self._view.services.synced
            and needs_service(desired.run, desired.pod_set)
            and self._view.services.named(
                service_name(desired.run.metadata.name, uid), desired.run.metadata.namespace
            )
            is None
        )

    def _is_waited_for(self, pod: LivePod, now: int) -> bool:
        """Whether the next attempt waits for the end of this pod: not on a failed node, and not for ever."""
        hangs_at = None if pod.deleted is None else parse_time(pod.deleted) + HANGS_MS
        if hangs_at is not None and hangs_at > now:
            self._refused_pods.look_again(pod.run_uid, hangs_at)
        return (hangs_at is None or hangs_at > now) and not self._is_lost(pod.pod.node)

    def _belongs(
        self, uid: str, pod: StoredObject[LivePod], placements: dict[str, PodPlacement], now: int
    ) -> bool:
        placement = placements.get(pod.name)
        if placement is None or not placement.is_at(pod.value.pod.node):
            return False
        if pod.value.rejected:
            return not self._refused_pods.must_replace(uid, pod, now)
        return placement.is_rank or pod.value.phase not in FINISHED

    def _may_stay(
        self, pod: StoredObject[LivePod], placements: dict[str, PodPlacement], desired: DesiredPods
    ) -> bool:
        """Whether a finished rank may stay for inspection: it is of this attempt or the last one."""
        if pod.value.phase not in FINISHED or pod.value.rejected or pod.name in placements:
            return False
        attempt = pod.value.labels.get(ATTEMPT_LABEL, "")
        return desired.pod_set == NO_PODS or (
            attempt.isdecimal() and int(attempt) >= desired.pod_set.attempt - 1
        )

    def _delete_pod(self, pod: StoredObject[LivePod]) -> None:
        lost = self._is_lost(pod.value.pod.node)
        if pod.value.deleted is not None and (pod.uid in self._deleting or not lost):
            return
        if pod.uid in self._deleting:
            return
        self._deleting.add(pod.uid)
        self._start_task(self._delete(pod, 0 if lost else None))

    async def _delete(self, pod: StoredObject[LivePod], grace_seconds: int | None) -> None:
        try:
            await self._writer.delete(PODS, Preconditions(pod.name, pod.namespace, pod.uid), grace_seconds)
        except KubeError as refused:
            self._deleting.discard(pod.uid)
            self._retry_later(pod.value.run_uid, "a pod could not be ended", pod.name, refused)

    def _is_lost(self, node: str) -> bool:
        """Whether the node has failed, so that no kubelet ends its pods."""
        if not node:
            return False  # the scheduler has not placed it yet
        live_node = self._view.nodes.named(node)
        return live_node is None or live_node.value.node.failed or node in self._failed_nodes

    def _update_risk_annotations(self, desired: DesiredPods, pods: list[StoredObject[LivePod]]) -> None:
        """Writes the risks of a Run to its running ranks (R11)."""
        text = risk_text(desired.risks)
        for pod in pods:
            if pod.value.phase == "Running" and pod.value.risk not in ("", text):
                self._start_task(self._annotate(pod, text))

    async def _annotate(self, pod: StoredObject[LivePod], text: str) -> None:
        patch = {"metadata": {"annotations": {RISK: text}}}
        try:
            preconditions = Preconditions(pod.name, pod.namespace, pod.uid)
            self._view.pods.apply_response(
                await self._writer.write(api_requests.merge_patch(PODS, preconditions, patch))
            )
        except StatusError as refused:
            self._log.say("binder", "a pod could not be warned", pod=pod.name, why=str(refused))

    # New pods

    def _create_pods(
        self,
        uid: str,
        desired: DesiredPods,
        missing: list[tuple[str, PodPlacement]],
        now: int,
        *,
        drains: bool,
    ) -> None:
        if self._view.runs.get(uid) is None:
            return  # the Run is gone, and the garbage collector deletes its pods
        if desired.resume_at > now:
            self._retry_at[uid] = desired.resume_at
            return
        ready = [] if drains or uid in self._retry_at else list(self._pods_with_room(desired.run, missing))
        if len(ready) < len(missing):
            self._waiting.add(uid)
        if ready:
            self._start_task(self._create_all(uid, desired, ready))

    def _pods_with_room(
        self, run: Run, missing: list[tuple[str, PodPlacement]]
    ) -> Iterator[tuple[str, PodPlacement]]:
        """The pods for which their node has room; the room is reserved for them."""
        for name, placement in missing:
            key = (run.metadata.namespace, name)
            node = self._view.nodes.named(placement.node)
            if self.observed_pods.is_expected(key) or (placement.node and node is None):
                continue
            used = self.observed_pods.used(placement.node)
            if node is None or used + placement.gpus <= node.value.node.gpus:
                self.observed_pods.expect_pod(key, placement.node, placement.gpus)
                yield name, placement

    async def _create_all(
        self, uid: str, desired: DesiredPods, ready: list[tuple[str, PodPlacement]]
    ) -> None:
        await self._leases_written(uid)
        try:
            if uid not in self._with_service and needs_service(desired.run, desired.pod_set):
                await self._writer.create(SERVICES, service_document(desired.run))
            self._with_service.add(uid)
        except KubeError as refused:
            for name, _ in ready:
                self.observed_pods.forget_expected((desired.run.metadata.namespace, name))
                self._record_refusal(uid, name, refused)
            self._retry_later(uid, "a Service could not be made", desired.run.metadata.name, refused)
            return
        slots = self._slots_of_large_pods if is_large(desired.run) else self._slots
        await asyncio.gather(
            *(self._create(uid, desired, name, placement, slots) for name, placement in ready)
        )

    async def _create(
        self, uid: str, desired: DesiredPods, name: str, placement: PodPlacement, slots: FairSlots
    ) -> None:
        key = (desired.run.metadata.namespace, name)
        try:
            async with slots.slot(key[0]):  # thousands may wait: each document is built only when it is sent
                answer = await self._writer.create(PODS, self._document(desired, placement))
        except (KubeError, UnfitTemplateError) as refused:
            self.observed_pods.forget_expected(key)
            if self._priority_class and f"no PriorityClass with name {self._priority_class} " in str(refused):
                self._priority_class = ""
                self._log.say("binder", "pods have no priority: apply the manifests of this version")
            else:
                self._record_refusal(uid, name, refused)
            self._retry_later(uid, "a pod could not be made", name, refused)
            return
        self._refused_pods.accept_creation(uid, name)
        lost = self._rank_lost(desired, placement, "its pod was deleted") if placement.is_rank else None
        self._created[key] = CreatedPod(msgspec.json.decode(answer, type=ObjectHead).metadata.uid, uid, lost)
        self._view.pods.apply_response(answer)
        if self._view.pods.get(self._created[key].uid) is None:
            self._wake()  # it was deleted before the answer arrived

    def _record_refusal(self, uid: str, name: str, refused: Exception) -> None:
        """Records a pod that is not created: its Run does not keep its GPUs for ever (H5)."""
        if is_refusal(refused):
            self._refused_pods.refuse_creation(uid, name, str(refused))
            self._unchecked.add(uid)

    def _gpus_of_node(self, name: str) -> int | None:
        node = self._view.nodes.named(name)
        return None if node is None else node.value.node.gpus

    def _rank_lost(self, desired: DesiredPods, placement: PodPlacement, message: str) -> RankLost:
        metadata = desired.run.metadata
        run_key, group_rank = (metadata.namespace, metadata.name), (placement.group, placement.group_rank)
        attempt = desired.pod_set.attempt
        return RankLost(
            run_key, metadata.uid, attempt, self._clock(), group_rank, failed=False, message=message
        )

    def _document(self, desired: DesiredPods, placement: PodPlacement) -> ObjectBody:
        """Builds the pod of one placement. Raises UnfitTemplateError if the template is absent or broken."""
        policy, run = self._policy(), desired.run
        node = self._view.nodes.named(placement.node)
        resource = node.value.node.gpu_resource if node is not None else "nvidia.com/gpu"
        own = run.spec.template
        template = (own.document() if own is not None else None) or policy.default_template
        if template is None:
            raise UnfitTemplateError(
                "spec.template is absent, and the policy has no defaultTemplate: set one of them"
            )
        try:
            choice = choose_binding(policy.binding, template)
            defaults = PodDefaults(
                template, resource, policy.max_grace_ms, choice.by_scheduler, self._priority_class
            )
            return pod_document(run, desired.pod_set, placement, defaults, desired.risks)
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as broken:
            raise UnfitTemplateError(f"spec.template cannot be made into a pod: {broken}") from None

    # Parts

    def _policy(self) -> Policy:
        return next((policy.value for policy in self._view.policy), Policy())

    def _retry_later(self, uid: str, what: str, name: str, refused: Exception) -> None:
        if not isinstance(refused, FencedError):
            self._log.say("binder", what, name=name, **log_fields(refused))
            self._record_note(uid, "PodRefused", f"{what}: {refused}")
        if uid not in self._retry_at:  # not once more for each pod of a gang
            growing = is_refusal(refused) and not isinstance(refused, FencedError)
            pause = self._refused_pods.creation_pause(uid) if growing else RETRY_MS
            self._retry_at[uid] = self._clock() + pause
        self._touched.add(uid)
        self._wake()

    def _record_note(self, uid: str, reason: str, message: str, kind: str = "") -> None:
        """Adds an Event once per message, or once per ``kind``: pods of a gang have the same trouble."""
        run, what = self._view.runs.get(uid), kind or message
        if run is not None and (uid, what) not in self._noted_messages:
            self._noted_messages.add((uid, what))
            self._event_notes.append(EventNote(run.value, reason, message, self._clock(), warning=True))

    def _forget(self, uid: str) -> None:
        if self._view.runs.get(uid) is None:
            self._desired.pop(uid, None)
            self._with_service.discard(uid)
            self._noted_messages = {noted for noted in self._noted_messages if noted[0] != uid}
            self.observed_pods.forget_run(uid)
            self._refused_pods.forget_run(uid)

    def _start_task(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
