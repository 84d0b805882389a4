"""``python -m benchmarks.small_trace``: writes the sample trace of the project.

It has three teams and one week, and resembles real traces: most jobs are small and short, a few are large and
long, and more jobs are submitted by day. The file is the same every time.
"""

import sys
from pathlib import Path
from random import Random

PATH = Path("config/samples/traces/week.csv")
SEED = 2026
JOBS = 480
DAY_S = 86_400
TEAMS = {"vision": 5, "speech": 3, "robots": 2}
SIZES = {1: 46, 2: 10, 4: 12, 8: 20, 16: 8, 32: 4}
SHORTEST_S, LONGEST_S = 60, 3 * DAY_S


def rows(random: Random) -> list[str]:
    jobs = sorted(
        (
            submission(random),
            random.choices(list(TEAMS), list(TEAMS.values()))[0],
            random.choices(list(SIZES), list(SIZES.values()))[0],
            duration(random),
        )
        for _ in range(JOBS)
    )
    return [
        f"week-{number:03d},{team},{submit},{length},{gpus},,"
        for number, (submit, team, gpus, length) in enumerate(jobs, 1)
    ]


def submission(random: Random) -> int:
    """Returns a random second of the week; seconds by day are three times as likely."""
    while True:
        at = random.randrange(7 * DAY_S)
        if 8 <= at % DAY_S // 3600 < 20 or random.random() < 1 / 3:
            return at


def duration(random: Random) -> int:
    return round(min(LONGEST_S, max(SHORTEST_S, random.lognormvariate(8.9, 1.5))))


def text() -> str:
    head = "job_id,user_or_team,submit_s,duration_s,gpus,gpu_type,status"
    return "".join(f"{line}\n" for line in (head, *rows(Random(SEED))))


if __name__ == "__main__":
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(text(), encoding="utf-8")
    sys.exit(0)
