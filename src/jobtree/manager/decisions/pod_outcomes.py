"""Outcomes that the pods of a Run report: all ranks succeeded, some are lost, or some are refused."""

from typing import Protocol

import msgspec

from jobtree.core import GroupRank, RankLoss, RefusedPods, RunKey, World


class PodOutcome(Protocol):
    """Something that happened outside the API objects of Jobtree, to be applied to the world once."""

    def apply_to(self, world: World) -> None: ...


class RunSucceeded(msgspec.Struct, frozen=True):
    """All ranks of this attempt succeeded."""

    run_key: RunKey
    uid: str
    attempt: int
    at: int

    def apply_to(self, world: World) -> None:
        run = world.runs.get(self.run_key)
        if run is not None and run.uid == self.uid and run.attempt == self.attempt:
            world.finish(self.run_key, succeeded=True, at=max(self.at, run.since or 0))


class RankLost(msgspec.Struct, frozen=True):
    """A rank of this attempt failed, or somebody evicted or deleted its pod."""

    run_key: RunKey
    uid: str
    attempt: int
    at: int
    group_rank: GroupRank
    failed: bool
    message: str = ""

    def apply_to(self, world: World) -> None:
        run = world.runs.get(self.run_key)
        if run is not None and run.uid == self.uid:
            loss = RankLoss(self.at, self.group_rank, self.attempt, self.failed, self.message)
            world.lose_rank(self.run_key, loss)


class PodsRefused(msgspec.Struct, frozen=True):
    """All pods of a Run that somebody refuses now (N3); none: those that were refused run, or are gone."""

    run_key: RunKey
    uid: str
    attempt: int
    refused: tuple[RefusedPods, ...]

    def apply_to(self, world: World) -> None:
        run = world.runs.get(self.run_key)
        if run is not None and run.uid == self.uid:
            world.refuse_pods(self.run_key, self.attempt, self.refused)


class SpareLost(msgspec.Struct, frozen=True):
    """Somebody evicted or deleted a standby pod."""

    run_key: RunKey
    uid: str
    node: str

    def apply_to(self, world: World) -> None:
        run = world.runs.get(self.run_key)
        if run is not None and run.uid == self.uid:
            world.lose_spare(self.run_key, self.node)
