"""The Runs that another Run waits for (J1): it is released when all of them are Completed.

A failure upstream fails the Run at once (``onUpstreamFailure: fail``), or after a grace in which somebody can
repair the upstream Run and submit it again under its name. A Run also waits for an upstream Run that does not
exist, and its verdict says so. A stage also waits for the upstream Runs of its tree, and a stage gang for
those of each member. Where a Run that is no stage has the name of an upstream stage, the stage does not
exist. Stages that start together wait until all of them exist.
"""

from collections.abc import Iterator

import msgspec

from jobtree.api.kinds.run import Follow
from jobtree.api.schema.quantities import parse_duration
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.reasons import Cause, Reason, Verdict
from jobtree.core.runs.run_graph import RunGraph
from jobtree.core.runs.run_state import RunState


class Upstream(msgspec.Struct, frozen=True):
    """A Run that another Run waits for; ``run`` is None where it does not exist."""

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
        """Returns when this failed Run fails the Runs that follow it."""
        assert self.run is not None
        at = self.run.phase_at
        return (
            at
            if self.follow.on_upstream_failure == "fail"
            else at + parse_duration(self.follow.upstream_failure_grace)
        )


def upstreams(run_graph: RunGraph, run: RunState) -> Iterator[Upstream]:
    """Yields all Runs that a Run waits for: those that it, its gang and its trees follow."""
    for member in run_graph.members(run):
        follow = member.run_object.spec.follow
        for name in follow.after if follow else ():
            key = (run.key[0], name)
            assert follow is not None
            upstream = run_graph.get(key)
            is_stage = upstream is None or member.parent is None or upstream.parent == member.parent
            yield Upstream(key, upstream if is_stage else None, follow)
    for key in run_graph.missing_members(run):
        yield Upstream(key, None, Follow(after=(key[1],)))
    tree = run_graph.tree_of(run)
    if tree is not None:
        yield from upstreams(run_graph, tree)


def is_released(run_graph: RunGraph, run: RunState) -> bool:
    return all(upstream.done for upstream in upstreams(run_graph, run))


def upstream_failure_at(run_graph: RunGraph, run: RunState) -> tuple[int, str] | None:
    """Returns when a failure upstream will fail the Run, and the name of the failed Run; None: never."""
    failures = [
        (upstream.fails_followers_at(), upstream.key[1])
        for upstream in upstreams(run_graph, run)
        if upstream.failed
    ]
    return min(failures, default=None)


def waiting_verdict(run_graph: RunGraph, run: RunState) -> Verdict:
    """Returns the verdict that names each upstream Run that is not done."""
    causes = []
    for upstream in upstreams(run_graph, run):
        name = upstream.key[1]
        if upstream.run is None:
            causes.append(Cause(Reason.UPSTREAM_MISSING, name))
        elif upstream.failed:
            causes.append(Cause(Reason.UPSTREAM_FAILED, name))
        elif not upstream.done:
            causes.append(Cause(Reason.UPSTREAM, name))
    return Verdict("Waiting", tuple(dict.fromkeys(causes)))
