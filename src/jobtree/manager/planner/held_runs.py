"""Builds an Event for each Run that has leases on nodes which the breaker holds (F2c)."""

from collections.abc import Iterator

from jobtree.core import RunKey, World
from jobtree.manager.decisions.write_set import EventNote
from jobtree.manager.planner.cluster_intake import ClusterIntake

MOST_NAMES = 8  # of nodes in a message
MESSAGE = (
    "not Ready, together with more than half of the nodes of their domain or of the fleet: {nodes}: the Run "
    "keeps its leases, which are charged, until they are Ready or an administrator takes them out of service"
)


class HeldRuns:
    """Remembers which Runs have their Event. A Run gets another one when its nodes were Ready meanwhile."""

    def __init__(self, world: World, intake: ClusterIntake) -> None:
        self._world = world
        self._intake = intake
        self._reported: set[RunKey] = set()

    def event_notes(self, held_nodes: tuple[str, ...]) -> Iterator[EventNote]:
        by_run: dict[RunKey, list[str]] = {}
        for node in held_nodes:
            for lease in self._world.leases_by_node.get(node, ()):
                nodes = by_run.setdefault(self._world.posted_leases[lease].lease.run_key, [])
                if node not in nodes:
                    nodes.append(node)
        for key in sorted(by_run.keys() - self._reported):
            note = self._event_note(key, by_run[key])
            if note is not None:
                yield note
        self._reported = set(by_run)

    def _event_note(self, key: RunKey, nodes: list[str]) -> EventNote | None:
        """Returns an Event that is the same after a restart: it is dated by the loss of the first node."""
        run = self._world.runs.get(key)
        run_object = None if run is None else self._intake.runs.get(run.uid)
        if run_object is None:
            return None
        more = f" and {len(nodes) - MOST_NAMES} more" if len(nodes) > MOST_NAMES else ""
        names = ", ".join(nodes[:MOST_NAMES]) + more
        lost = [self._world.fleet.nodes[node].node.not_ready_since_ms or 0 for node in nodes]
        return EventNote(run_object, "NodesHeld", MESSAGE.format(nodes=names), min(lost), warning=True)
