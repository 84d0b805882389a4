"""The manager without pods: ``python -m benchmarks.live.podless``, with the manager's own flags.

Where it would make the pods of a gang, it waits for as long as they would have run and says that all of them
have succeeded. Everything else is the manager. Only the benchmark of admission alone uses this.
"""

import asyncio
import sys
from typing import ClassVar

from jobtree.manager import __main__ as manager
from jobtree.manager.controllers.pod_reconciler import PodReconciler
from jobtree.manager.decisions.pod_outcomes import RunSucceeded
from jobtree.manager.decisions.write_set import DesiredPods
from jobtree.manager.pods.pod_set import PodPlacement
from jobtree.manager.process import control_loop

LASTS_SECONDS = 0.2


class PodlessKeeper(PodReconciler):
    """A pod reconciler without pods, which reports the success of each gang once."""

    _over: ClassVar[set[str]] = set()

    async def _create_all(
        self, uid: str, desired: DesiredPods, ready: list[tuple[str, PodPlacement]]
    ) -> None:
        await asyncio.sleep(LASTS_SECONDS)
        metadata = desired.run.metadata
        for name, _ in ready:
            self.observed_pods.forget_expected((metadata.namespace, name))
        run = (metadata.namespace, metadata.name)
        if uid in self._over:
            return
        self._over.add(uid)
        self._outcomes.append(RunSucceeded(run, uid, desired.pod_set.attempt, self._clock()))
        self._wake()


if __name__ == "__main__":
    control_loop.PodReconciler = PodlessKeeper  # type: ignore[attr-defined]
    sys.exit(manager.main())
