"""``python -m tests.soak``: plays simulated weeks and prints the seeds that failed.

``--seed N`` plays one week; ``--weeks N`` plays that many, from the seed ``--first`` on.
"""

import argparse
import sys
import time
import traceback

from tests.soak.week import Week


def failure_of(seed: int) -> str | None:
    """Plays the week of a seed; returns what failed and the command that repeats it, or None."""
    week: Week | None = None
    try:
        week = Week(seed)
        week.play()
    except Exception:  # noqa: BLE001  every failure is reported with its seed
        steps = week.history[-20:] if week else []
        events = (
            [f"{event.name} {'/'.join(event.run)}: {event.message}" for event in week.cluster.events[-20:]]
            if week
            else []
        )
        report = "\n".join([traceback.format_exc(), "last steps:", *steps, "last Events:", *events])
        return f"{report}\nto repeat it: python -m tests.soak --seed {seed}"
    return None


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    options.add_argument("--seed", type=int, help="play only the week of this seed")
    options.add_argument("--weeks", type=int, default=200, help="the number of weeks (default 200)")
    options.add_argument("--first", type=int, default=0, help="the seed of the first week (default 0)")
    arguments = options.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.weeks)
    if arguments.seed is not None:
        seeds = range(arguments.seed, arguments.seed + 1)
    start, failed_seeds = time.monotonic(), []
    for seed in seeds:
        failure = failure_of(seed)
        if failure is not None:
            failed_seeds.append(seed)
            sys.stderr.write(f"{failure}\n")
    seconds = time.monotonic() - start
    sys.stdout.write(f"{len(seeds)} weeks in {seconds:.0f} s; failed seeds: {failed_seeds or 'none'}\n")
    return 1 if failed_seeds else 0


if __name__ == "__main__":
    sys.exit(main())
