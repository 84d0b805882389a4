"""``python -m tests.soak``: live through simulated weeks, and say which seed went wrong.

``--seed N`` lives through one week and tells its story; ``--weeks N`` through that many, ``--first`` says
from which seed on.
"""

import argparse
import sys
import time
import traceback

from tests.soak.week import Week


def wrong_with(seed: int) -> str | None:
    """What went wrong in the week of a seed, and the command that shows it again; None: nothing did."""
    week: Week | None = None
    try:
        week = Week(seed)
        week.live()
    except Exception:  # noqa: BLE001  whatever it is, it is reported with its seed
        story = week.story[-20:] if week else []
        events = (
            [f"{one.name} {'/'.join(one.run)}: {one.message}" for one in week.cluster.events[-20:]]
            if week
            else []
        )
        told = "\n".join([traceback.format_exc(), "what people did:", *story, "what happened:", *events])
        return f"{told}\nto see it again: python -m tests.soak --seed {seed}"
    return None


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    options.add_argument("--seed", type=int, help="live through this one week")
    options.add_argument("--weeks", type=int, default=200, help="how many weeks (default 200)")
    options.add_argument("--first", type=int, default=0, help="the seed of the first of them (default 0)")
    asked = options.parse_args()
    seeds = range(asked.first, asked.first + asked.weeks) if asked.seed is None else [asked.seed]
    began, failed = time.monotonic(), []
    for seed in seeds:
        wrong = wrong_with(seed)
        if wrong is not None:
            failed.append(seed)
            sys.stderr.write(f"{wrong}\n")
    seconds = time.monotonic() - began
    sys.stdout.write(f"{len(seeds)} weeks in {seconds:.0f} s; went wrong: {failed or 'none'}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
