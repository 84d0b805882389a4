"""Which pods every Run must have, and whose have changed."""

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
        self._known: dict[str, DesiredPods] = {}
        self._by_run: dict[RunKey, set[str]] = {}  # of those, the UIDs that a name has or had
        self._touched: set[RunKey] = set()
        self._changed: set[RunKey] = set()
        self._spared: set[RunKey] = set()  # Runs with spares
        self._lending = False

    def mark_changed(self, action: Action) -> None:
        self._touched.add(action.run_key)
        self._lending = self._lending or bool(action.opens or action.closes)

    def touch_all(self) -> None:
        self._touched.update(self._world.runs)

    def handle_changes(self, changes: Iterable[Change[Run]]) -> None:
        """Runs that changed: one of them may be gone, or another one have its name."""
        self._changed.update((one.namespace, one.name) for change in changes for one in change if one)

    def refresh(
        self, runs: dict[str, Run], warned: set[RunKey], threats: RiskIndex
    ) -> dict[str, DesiredPods]:
        """The companies that changed, by UID of their Run; ``known_risks``: whose threats have."""
        touched = self._touched | warned
        states = [self._world.runs[key] for key in touched if key in self._world.runs]
        self._spared -= touched
        self._spared |= {run.key for run in states if has_spares(run)}
        if self._lending:
            states += [self._world.runs[key] for key in self._spared if key in self._world.runs]
        present = {run.uid: self._desired_pods(run, threats) for run in states}
        for key in touched | self._changed:
            for uid in sorted(self._by_run.get(key, ())):
                known = self._known[uid]
                if uid not in present and self._forget(known):
                    present[uid] = DesiredPods(known.run, NO_PODS)
                elif known.cast == NO_PODS and uid not in runs:
                    self._remember(uid, known, present=False)
        self._touched, self._changed, self._lending = set(), set(), False
        changed = {uid: one for uid, one in present.items() if self._known.get(uid) != one}
        for uid, company in changed.items():
            self._remember(uid, company, present=company.cast != NO_PODS or uid in runs)
        return changed

    def _remember(self, uid: str, company: DesiredPods, *, present: bool) -> None:
        key = (company.run.metadata.namespace, company.run.metadata.name)
        uids = self._by_run.setdefault(key, set())
        if present:
            self._known[uid] = company
            uids.add(uid)
            return
        self._known.pop(uid, None)
        uids.discard(uid)
        if not uids:
            del self._by_run[key]

    def _forget(self, company: DesiredPods) -> bool:
        """Whether its Run is not there any more, or another one has its name."""
        metadata = company.run.metadata
        run = self._world.runs.get((metadata.namespace, metadata.name))
        return company.cast != NO_PODS and (run is None or run.uid != metadata.uid)

    def _desired_pods(self, run: RunState, threats: RiskIndex) -> DesiredPods:
        warned = threats.known_risks(run.key)
        return DesiredPods(
            run.run_object, pod_set(run, self._spare_in_use), run.resume_at, warned.risks if warned else ()
        )

    def _spare_in_use(self, node: str, mask: int) -> bool:
        """Whether unpaid work uses slots of a spare."""
        known = self._world.fleet.nodes.get(node)
        return known is not None and bool(known.spare & known.leased & mask)


def has_spares(run: RunState) -> bool:
    return any(lease.role == "Spare" for lease in run.leases.values())
