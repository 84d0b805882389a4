"""Which pods every Run must have, and whose have changed."""

from jobtree.api.run import Run
from jobtree.core.actions import Action
from jobtree.core.lease import RunKey
from jobtree.core.runs import RunState
from jobtree.core.status import Warned
from jobtree.core.world import World
from jobtree.manager.pods.places import NOBODY, cast_of
from jobtree.manager.steps import Company


class Casting:
    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[str, Company] = {}
        self._touched: set[RunKey] = set()
        self._lending = False

    def touch(self, action: Action) -> None:
        self._touched.add(action.run)
        self._lending = self._lending or bool(action.opens or action.closes)

    def touch_all(self) -> None:
        self._touched.update(self._world.runs)

    def refresh(self, runs: dict[str, Run], warned: dict[RunKey, Warned]) -> dict[str, Company]:
        """The companies that changed, by UID of their Run."""
        states = [self._world.runs[key] for key in self._touched | warned.keys() if key in self._world.runs]
        if self._lending:
            states += [state for state in self._world.runs.values() if has_spares(state)]
        present = {state.uid: self._company(state, warned) for state in states}
        for uid, company in self._known.items():
            if uid not in present and self._left(company):
                present[uid] = Company(company.run, NOBODY)
        self._touched, self._lending = set(), False
        changed = {uid: one for uid, one in present.items() if self._known.get(uid) != one}
        self._known.update(changed)
        for uid in [uid for uid, company in changed.items() if company.cast == NOBODY and uid not in runs]:
            del self._known[uid]
        return changed

    def _left(self, company: Company) -> bool:
        """Whether its Run is not there any more, or another one has its name."""
        metadata = company.run.metadata
        state = self._world.runs.get((metadata.namespace, metadata.name))
        return company.cast != NOBODY and (state is None or state.uid != metadata.uid)

    def _company(self, state: RunState, warned: dict[RunKey, Warned]) -> Company:
        risks = warned[state.key].risks if state.key in warned else ()
        return Company(state.run, cast_of(state, self._lent), state.resume_at, risks)

    def _lent(self, node: str, mask: int) -> bool:
        """Whether unpaid work uses slots of a spare."""
        known = self._world.fleet.nodes.get(node)
        return known is not None and bool(known.spare & known.leased & mask)


def has_spares(state: RunState) -> bool:
    return any(lease.role == "Spare" for lease in state.leases.values())
