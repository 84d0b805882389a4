"""Waiting for other Runs (J1): a Run is released when all it follows are Completed.

A failure upstream fails the Run at once (``onUpstreamFailure: fail``) or, so that somebody can mend it and
submit it again under its name, after a grace. What does not exist is waited for, and the Run says so.
A stage also waits for what its tree waits for, and gangs for what any of their members waits for.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from jobtree.api.kinds.run import Follow
from jobtree.api.schema.quantities import parse_duration
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.reasons import Cause, Reason, Verdict
from jobtree.core.runs.run_state import RunState

if TYPE_CHECKING:
    from jobtree.core.world.world import World


class Upstream(msgspec.Struct, frozen=True):
    """A Run that another waits for, as it stands; None: there is none of that name."""

    key: RunKey
    run: RunState | None
    follow: Follow

    @property
    def done(self) -> bool:
        return self.run is not None and self.run.phase == "Completed"

    @property
    def failed(self) -> bool:
        return self.run is not None and self.run.phase == "Failed"

    def fails_followers_at(self) -> int:
        """When a Run that follows it fails too."""
        assert self.run is not None
        at = self.run.phase_at
        return (
            at
            if self.follow.on_upstream_failure == "fail"
            else at + parse_duration(self.follow.upstream_failure_grace)
        )


def upstreams(world: "World", run: RunState) -> Iterator[Upstream]:
    """All that a Run waits for: what it follows, what its gang follows, what its trees follow."""
    for member in world.run_graph.members(run):
        follow = member.run_object.spec.follow
        for name in follow.after if follow else ():
            key = (run.key[0], name)
            assert follow is not None
            yield Upstream(key, world.runs.get(key), follow)
    tree = world.run_graph.tree_of(run)
    if tree is not None:
        yield from upstreams(world, tree)


def is_released(world: "World", run: RunState) -> bool:
    return all(one.done for one in upstreams(world, run))


def upstream_failure_at(world: "World", run: RunState) -> tuple[int, str] | None:
    """When the Run fails because of a failure upstream, and whose; None: as things stand, never."""
    failures = [(one.fails_followers_at(), one.key[1]) for one in upstreams(world, run) if one.failed]
    return min(failures, default=None)


def waiting_verdict(world: "World", run: RunState) -> Verdict:
    """What it waits for, in words."""
    whys = []
    for one in upstreams(world, run):
        if one.run is None:
            whys.append(Cause(Reason.UPSTREAM_MISSING, one.key[1]))
        elif one.failed:
            whys.append(Cause(Reason.UPSTREAM_FAILED, one.key[1]))
        elif not one.done:
            whys.append(Cause(Reason.UPSTREAM, one.key[1]))
    return Verdict("Waiting", tuple(dict.fromkeys(whys)))
