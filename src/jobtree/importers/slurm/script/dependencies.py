"""Converts --dependency to ``follow``.

A dependency names jobs by number, or by name if their scripts are converted together. It becomes
``follow.after`` if the mapping has the number under ``jobs``, or if a script of that name is converted.
Jobtree only waits for success; other kinds of dependency get a remark.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from jobtree.importers.conversion import Converted
from jobtree.importers.slurm.script.batch_script import OptionSetting

MAX_AFTER = 64
SUCCESS = ("afterok", "aftercorr")
INSTEAD = {
    "after": "a Run waits for the end of another, not for its start: the dependency is ignored",
    "afterany": "a Run waits for success: if the other Run fails, it fails too, after upstreamFailureGrace",
    "afternotok": "a Run cannot wait for a failure: submit it by hand after the other Run failed",
    "afterburstbuffer": "Jobtree has no burst buffers: the dependency is ignored",
    "expand": "a Run cannot be joined to another: use malleable for a Run that grows",
}
UNKNOWN = "convert its script together with this one, or add its Run under jobs: in the mapping"


class DependencyTarget(NamedTuple):
    """The Runs of a name or number: one, several (a job array), or a job tree."""

    runs: tuple[str, ...]


class DependencyIndex(NamedTuple):
    """The jobs to wait for by number or name, and the last job of each name so far (for ``singleton``)."""

    jobs: Mapping[str, DependencyTarget]
    earlier: Mapping[str, DependencyTarget]

    def runs(self, kind: str, job: str, element: int) -> tuple[str, ...] | None:
        """The Runs of a job; for ``aftercorr`` of an array, the Run at the same position."""
        upstream = self.jobs.get(job.partition("+")[0])
        if upstream is None:
            return None
        if kind == "aftercorr" and element < len(upstream.runs):
            return (upstream.runs[element],)
        return upstream.runs


def follow_of(
    setting: OptionSetting, name: str, index: DependencyIndex, element: int, out: Converted
) -> dict[str, Any] | None:
    """The ``follow`` of a job of this name. ``element`` is its position in a job array."""
    if "?" in setting.value:
        out.remark(setting.where, str(setting), "a Run waits for all Runs that it names, not for one of them")
    after: dict[str, None] = {}
    for part in setting.value.replace("?", ",").split(","):
        kind, *jobs = part.split(":")
        if kind == "singleton" and name in index.earlier:
            after |= dict.fromkeys(index.earlier[name].runs)
        for job in jobs if kind in (*SUCCESS, "afterany") else ():
            upstream = index.runs(kind, job, element)
            after |= dict.fromkeys(upstream or ())
            if upstream is None:
                out.remark(
                    setting.where, f"--dependency={kind}:{job}", f"the Run of {job} is not known: {UNKNOWN}"
                )
        if kind not in (*SUCCESS, "singleton", ""):
            instead = INSTEAD.get(kind, "is unknown, and is ignored")
            out.remark(setting.where, f"--dependency={part}", instead)
    if len(after) > MAX_AFTER:
        most = f"a Run follows at most {MAX_AFTER} others: it follows the last of {len(after)}"
        out.remark(setting.where, str(setting), most)
    return {"after": list(after)[-MAX_AFTER:]} if after else None
