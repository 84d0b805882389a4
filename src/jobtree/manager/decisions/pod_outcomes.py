"""What the pods of a Run tell: all its ranks are done, or some are lost, or a spare is."""

from typing import Protocol

import msgspec

from jobtree.core import GroupRank, RankLoss, RunKey, World


class PodOutcome(Protocol):
    def apply_to(self, world: World) -> None: ...


class RunSucceeded(msgspec.Struct, frozen=True):
    """All ranks of this attempt succeeded."""

    run: RunKey
    uid: str
    attempt: int
    at: int

    def apply_to(self, world: World) -> None:
        run = world.runs.get(self.run)
        if run is not None and run.uid == self.uid and run.attempt == self.attempt:
            world.finish(self.run, succeeded=True, at=max(self.at, run.since or 0))


class RankLost(msgspec.Struct, frozen=True):
    """A rank of this attempt failed, or somebody evicted or deleted its pod."""

    run: RunKey
    uid: str
    attempt: int
    at: int
    seat: GroupRank
    failed: bool
    message: str = ""

    def apply_to(self, world: World) -> None:
        run = world.runs.get(self.run)
        if run is not None and run.uid == self.uid:
            mishap = RankLoss(self.at, self.seat, self.attempt, self.failed, self.message)
            world.lose_rank(self.run, mishap)


class SpareLost(msgspec.Struct, frozen=True):
    """Somebody evicted or deleted a standby pod."""

    run: RunKey
    uid: str
    node: str

    def apply_to(self, world: World) -> None:
        run = world.runs.get(self.run)
        if run is not None and run.uid == self.uid:
            world.lose_spare(self.run, self.node)
