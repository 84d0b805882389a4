"""``python -m tests.live.faults.soak``: plays the workload many times, each time with another disturbance.

First the manager is killed after write 1, then after write 2, until there is no such write. Then the
workload is played with faults, once for each seed. The workloads share a cluster, which is replaced after
30 of them and after a failure. Each workload prints one line. A failure is written to a file, and the last
line says how to repeat the failed ones. ``--kills 37-`` starts at write 37, ``--kills 5,8`` plays only
these, ``--kills none`` plays none; likewise ``--seeds``.
"""

import argparse
import re
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

from tests.live.cluster.control_plane import ControlPlane
from tests.live.faults.disturbed_workloads import play_with_faults, play_with_kill, undisturbed_outcome
from tests.live.faults.fault_cluster import AUDIT_OK, FaultCluster
from tests.live.faults.outcome import Outcome
from tests.live.programs.build_recipes import CLUSTER_PROGRAMS
from tests.live.programs.program_finder import find_programs

KILLS, SEEDS = "1-", "1-20"
WORKLOADS_PER_CLUSTER = 30  # objects that a workload leaves behind make the next one slower
LARGEST_NUMBER = 2**31
REPORTS = Path("build/soak-live")


def spans(text: str) -> list[range]:
    """Returns the ranges in a text such as ``5,8,20-30,90-``, in that order; none for ``none``."""
    return [] if text == "none" else [span(part) for part in text.split(",")]


def span(text: str) -> range:
    match = re.fullmatch(r"(\d+)(-)?(\d+)?", text)
    if match is None or (match[3] and not match[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor a range: write 5, 20-30 or 90-")
    first, last = int(match[1]), int(match[3] or LARGEST_NUMBER) if match[2] else int(match[1])
    return range(first, last + 1)


class Soak:
    """The cluster that workloads share, and the numbers of the failed workloads."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._cluster: FaultCluster | None = None
        self._expected: Outcome | None = None
        self._workloads_left = 0
        self.workloads = 0
        self.failed: dict[str, list[int]] = {}

    def close(self) -> None:
        self._stack.close()
        self._cluster = None

    def cluster(self) -> tuple[FaultCluster, Outcome]:
        """Returns the cluster, a new one if need be, and the outcome without a disturbance."""
        if self._workloads_left == 0:
            self.close()
        if self._cluster is None:
            self._cluster = FaultCluster(self._stack.enter_context(ControlPlane()))
            self._workloads_left = WORKLOADS_PER_CLUSTER
            self._expected = self._expected or undisturbed_outcome(self._cluster)
        assert self._expected is not None
        self._workloads_left -= 1
        return self._cluster, self._expected

    def play(
        self, disturbance: str, number: int, play: Callable[[FaultCluster, Outcome, int], bool | None]
    ) -> bool:
        """Plays one workload. Returns False if it has no write of that number."""
        started = time.monotonic()
        self.workloads += 1
        try:
            cluster, expected = self.cluster()
            exists = play(cluster, expected, number) is not False
            assert (audit := cluster.audit()) == AUDIT_OK, audit
        except Exception:  # noqa: BLE001  any failure is reported with its number
            self._report(disturbance, number)
            self._workloads_left, exists, result = 0, True, "FAILED"
        else:
            result = "the same outcome" if exists else "the workload has no such write"
        sys.stdout.write(f"{disturbance} {number}: {result} ({time.monotonic() - started:.0f} s)\n")
        sys.stdout.flush()
        return exists

    def _report(self, disturbance: str, number: int) -> None:
        self.failed.setdefault(disturbance, []).append(number)
        REPORTS.mkdir(parents=True, exist_ok=True)
        path = REPORTS / f"{disturbance.replace(' ', '-')}-{number}.txt"
        path.write_text(traceback.format_exc())
        sys.stdout.write(f"the failure is in {path}\n")


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.live.faults.soak", description=__doc__)
    options.add_argument(
        "--kills", type=spans, default=KILLS, help="the writes after which to kill (default: all)"
    )
    options.add_argument("--seeds", type=spans, default=SEEDS, help="the seeds of faults (default 1-20)")
    arguments = options.parse_args()
    find_programs(CLUSTER_PROGRAMS)
    soak, started = Soak(), time.monotonic()
    try:
        for number in chain(*arguments.kills):
            if not soak.play("killed after write", number, play_with_kill):
                break
        for number in chain(*arguments.seeds):
            soak.play("faults of seed", number, play_with_faults)
    finally:
        soak.close()
    kills, seeds = (
        ",".join(map(str, soak.failed.get(disturbance, ()))) or "none"
        for disturbance in ("killed after write", "faults of seed")
    )
    print(f"{soak.workloads} workloads in {time.monotonic() - started:.0f} s")  # noqa: T201  the summary
    if soak.failed:
        print(f"to repeat the failed ones: make soak-live KILLS={kills} SEEDS={seeds}")  # noqa: T201
    return 1 if soak.failed else 0


if __name__ == "__main__":
    sys.exit(main())
