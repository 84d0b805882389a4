"""``python -m tests.live.soak``: eventful hours on a real API server, each with another hardship.

A manager is killed after each single write of an hour, as many as there are; then come hours with faults,
one for each seed. All of them share a cluster, renewed now and then, and after one that went wrong. Every
hour is a line; what went wrong is told in full in a file, and the end says how to play it again.
``--kills 37-`` goes on where somebody stopped, ``--kills 5,8`` plays just those; ``--kills none`` leaves
them out. The same with ``--seeds``.
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

from tests.live.binaries import find_all
from tests.live.cluster import PROGRAMS
from tests.live.control_plane import ControlPlane
from tests.live.eventful import SOUND, Ground, Outcome
from tests.live.hardship import killed_after, led_astray, undisturbed_outcome

KILLS, SEEDS = "1-", "1-20"
FRESH_AFTER = 30  # hours: what they leave behind makes the next one slower
NO_END = 2**31
REPORTS = Path("build/soak-live")


def spans(text: str) -> list[range]:
    """The numbers that ``5,8,20-30,90-`` stands for, in that order; of ``none``, none."""
    return [] if text == "none" else [span(part) for part in text.split(",")]


def span(text: str) -> range:
    found = re.fullmatch(r"(\d+)(-)?(\d+)?", text)
    if found is None or (found[3] and not found[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor a range: write 5, 20-30 or 90-")
    first, last = int(found[1]), int(found[3] or NO_END) if found[2] else int(found[1])
    return range(first, last + 1)


class Soak:
    """The cluster that hours share, and what became of them."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._ground: Ground | None = None
        self._undisturbed: Outcome | None = None
        self._left = 0
        self.hours = 0
        self.wrong: dict[str, list[int]] = {}

    def close(self) -> None:
        self._stack.close()
        self._ground = None

    def ground(self) -> tuple[Ground, Outcome]:
        if self._left == 0:
            self.close()
        if self._ground is None:
            self._ground = Ground(self._stack.enter_context(ControlPlane()))
            self._left = FRESH_AFTER
            self._undisturbed = self._undisturbed or undisturbed_outcome(self._ground)
        assert self._undisturbed is not None
        self._left -= 1
        return self._ground, self._undisturbed

    def play(self, what: str, number: int, hour: Callable[[Ground, Outcome, int], bool | None]) -> bool:
        """One hour. False, if there is nothing of that number to befall a manager."""
        began = time.monotonic()
        self.hours += 1
        try:
            ground, undisturbed = self.ground()
            there = hour(ground, undisturbed, number) is not False
            assert (audit := ground.audit()) == SOUND, audit
        except Exception:  # noqa: BLE001  whatever it is, it is reported with its number
            self._report(what, number)
            self._left, there, ended = 0, True, "WENT WRONG"
        else:
            ended = "the same outcome" if there else "the hour has no such write"
        sys.stdout.write(f"{what} {number}: {ended} ({time.monotonic() - began:.0f} s)\n")
        sys.stdout.flush()
        return there

    def _report(self, what: str, number: int) -> None:
        self.wrong.setdefault(what, []).append(number)
        REPORTS.mkdir(parents=True, exist_ok=True)
        path = REPORTS / f"{what.replace(' ', '-')}-{number}.txt"
        path.write_text(traceback.format_exc())
        sys.stdout.write(f"{path} tells what went wrong\n")


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.live.soak", description=__doc__)
    options.add_argument("--kills", type=spans, default=KILLS, help="after which writes (default: all)")
    options.add_argument("--seeds", type=spans, default=SEEDS, help="of faults (default 1-20)")
    asked = options.parse_args()
    find_all(list(PROGRAMS))
    soak, began = Soak(), time.monotonic()
    try:
        for number in chain(*asked.kills):
            if not soak.play("killed after write", number, killed_after):
                break
        for number in chain(*asked.seeds):
            soak.play("faults of seed", number, led_astray)
    finally:
        soak.close()
    kills, seeds = (
        ",".join(map(str, soak.wrong.get(what, ()))) or "none"
        for what in ("killed after write", "faults of seed")
    )
    print(f"{soak.hours} hours in {time.monotonic() - began:.0f} s")  # noqa: T201  that is how it went
    if soak.wrong:
        print(f"to see again what went wrong: make soak-live KILLS={kills} SEEDS={seeds}")  # noqa: T201
    return 1 if soak.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
