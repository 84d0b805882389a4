"""--dependency: what must have ended before a job starts, as ``follow``.

A dependency names jobs by number. Where the numbers are known (the mapping's ``jobs``), or where a job is
named by its name and its script is converted together with this one, it becomes ``follow.after``. Jobtree
knows one kind of waiting, for success, and says so where Slurm knows another.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from jobtree.importers.conversion import Converted
from jobtree.importers.slurm.script.batch_script import OptionSetting

MAX_AFTER = 64
SUCCESS = ("afterok", "aftercorr")
INSTEAD = {
    "after": "a Run waits for the end of another, not for its start: it was left out",
    "afterany": "a Run waits for success: if what it follows fails, it fails too, after upstreamFailureGrace",
    "afternotok": "nothing waits for a failure: it was left out; watch the Run and submit this one by hand",
    "afterburstbuffer": "there are no burst buffers: it was left out",
    "expand": "a Run is not joined to another: see malleable for Runs that grow",
}


UNKNOWN = "Give its script together with this one, or name its Run under jobs: in the mapping"


class DependencyTarget(NamedTuple):
    """The Runs that a name or number stands for: one, several (a job array), or a tree."""

    runs: tuple[str, ...]


class DependencyIndex(NamedTuple):
    """What can be waited for: by number or name, and the last job of each name so far (singleton)."""

    jobs: Mapping[str, DependencyTarget]
    earlier: Mapping[str, DependencyTarget]

    def runs(self, kind: str, job: str, element: int) -> tuple[str, ...] | None:
        """The Runs that a job stands for; of an array, for aftercorr, the one with the same place."""
        upstream = self.jobs.get(job.partition("+")[0])
        if upstream is None:
            return None
        if kind == "aftercorr" and element < len(upstream.runs):
            return (upstream.runs[element],)
        return upstream.runs


def follow_of(
    setting: OptionSetting, name: str, index: DependencyIndex, element: int, out: Converted
) -> dict[str, Any] | None:
    """The ``follow`` of a job of this name; ``element``: its place in a job array."""
    if "?" in setting.value:
        out.remark(setting.where, str(setting), "any one of several: a Run waits for all that it names")
    after: dict[str, None] = {}
    for part in setting.value.replace("?", ",").split(","):
        kind, *jobs = part.split(":")
        if kind == "singleton" and name in index.earlier:
            after |= dict.fromkeys(index.earlier[name].runs)
        for job in jobs if kind in (*SUCCESS, "afterany") else ():
            upstream = index.runs(kind, job, element)
            after |= dict.fromkeys(upstream or ())
            if upstream is None:
                out.remark(setting.where, f"--dependency={kind}:{job}", f"which Run is {job}? {UNKNOWN}")
        if kind not in (*SUCCESS, "singleton", ""):
            instead = INSTEAD.get(kind, "is unknown: it was left out")
            out.remark(setting.where, f"--dependency={part}", instead)
    if len(after) > MAX_AFTER:
        most = f"a Run follows {MAX_AFTER} others at most: of {len(after)} it follows the last"
        out.remark(setting.where, str(setting), most)
    return {"after": list(after)[-MAX_AFTER:]} if after else None
