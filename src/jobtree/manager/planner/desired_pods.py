"""Keeps the pods that every Run must have, and returns those that changed."""

from collections.abc import Iterable

from jobtree.api.kinds.run import Run
from jobtree.core import Action, RunKey, RunState, World
from jobtree.kube.watch.object_store import Change
from jobtree.manager.decisions.write_set import DesiredPods
from jobtree.manager.pods.pod_set import NO_PODS, pod_set
from jobtree.messages.risk_index import RiskIndex


class PodSetTracker:
    def __init__(self, world: World) -> None:
        self._world = world
        self._desired: dict[str, DesiredPods] = {}  # by UID of the Run, as last returned
        self._uids: dict[RunKey, set[str]] = {}  # of these Runs; a name may have been given again
        self._touched: set[RunKey] = set()  # Runs with an action
        self._changed: set[RunKey] = set()  # Runs whose objects changed

    def mark_changed(self, action: Action) -> None:
        self._touched.add(action.run_key)

    def mark_all_changed(self) -> None:
        self._touched.update(self._world.runs)

    def handle_changes(self, changes: Iterable[Change[Run]]) -> None:
        """Marks Runs whose objects changed: a Run may be gone, or another Run may have its name."""
        self._changed.update(
            (stored.namespace, stored.name) for change in changes for stored in change if stored
        )

    def refresh(
        self, run_objects: dict[str, Run], warned: set[RunKey], risks: RiskIndex
    ) -> dict[str, DesiredPods]:
        """Returns the desired pods that changed since the last call, by UID of the Run.

        ``warned`` are the Runs whose risks changed.
        """
        touched = self._touched | warned
        runs = [self._world.runs[key] for key in touched if key in self._world.runs]
        current = {run.uid: self._desired_pods(run, risks) for run in runs}
        for key in touched | self._changed:
            for uid in sorted(self._uids.get(key, ())):
                previous = self._desired[uid]
                if uid not in current and self._has_lost_its_run(previous):
                    current[uid] = DesiredPods(previous.run, NO_PODS)
                elif previous.pod_set == NO_PODS and uid not in run_objects:
                    self._remember(uid, previous, present=False)
        self._touched, self._changed = set(), set()
        changed = {uid: desired for uid, desired in current.items() if self._desired.get(uid) != desired}
        for uid, desired in changed.items():
            self._remember(uid, desired, present=desired.pod_set != NO_PODS or uid in run_objects)
        return changed

    def _remember(self, uid: str, desired: DesiredPods, *, present: bool) -> None:
        key = (desired.run.metadata.namespace, desired.run.metadata.name)
        uids = self._uids.setdefault(key, set())
        if present:
            self._desired[uid] = desired
            uids.add(uid)
            return
        self._desired.pop(uid, None)
        uids.discard(uid)
        if not uids:
            del self._uids[key]

    def _has_lost_its_run(self, desired: DesiredPods) -> bool:
        """Whether the Run of these pods is gone, or another Run has its name."""
        metadata = desired.run.metadata
        run = self._world.runs.get((metadata.namespace, metadata.name))
        return desired.pod_set != NO_PODS and (run is None or run.uid != metadata.uid)

    def _desired_pods(self, run: RunState, risks: RiskIndex) -> DesiredPods:
        known_risks = risks.known_risks(run.key)
        return DesiredPods(
            run.run_object,
            pod_set(run),
            run.resume_at,
            known_risks.risks if known_risks else (),
            tuple((refusal.node, refusal.message) for refusal in run.refusals if refusal.is_open),
        )
