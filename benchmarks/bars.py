"""The bounds of ``make bench``, each with its reason. A figure without a bound is only reported.

They are for the full benchmark (100,000 GPUs, 85 % in use) on 2 cores at 2.8 GHz with CPython 3.11.
``results.json`` has the last runs and the margin of each bound.
"""

import msgspec


class Bar(msgspec.Struct, frozen=True):
    limit: float
    source: str

    def holds(self, value: float) -> bool:
        return value <= self.limit


INSTANT = "submitting feels instant: up to 128 GPUs are decided in less time than the request takes to arrive"
LARGE = "a gang of 1,024 GPUs touches 128 nodes and a family of payers: three times as long"
TAIL = "one arrival in a hundred may meet the worst case of holes, payers or garbage collection"

# GPUs of one arrival: milliseconds of put_run and plan, p50 and p99.
DECIDE_MS = {
    8: (Bar(1.0, INSTANT), Bar(5.0, TAIL)),
    128: (Bar(1.0, INSTANT), Bar(5.0, TAIL)),
    1024: (Bar(3.0, LARGE), Bar(10.0, TAIL)),
}

FLEET_RATIO = Bar(
    1.5,
    "a decision costs what it changes, not what exists: ten times the fleet, at most half as much again",
)
CLOSED_RATIO = Bar(1.2, "only the sums of closed leases are kept; the rest is the noise of a machine")
RESERVATION_MS = Bar(20.0, "a full fleet is when most Runs arrive: each gets its promise at once")
CROWD_END_MS = Bar(5.0, "with 1,000 waiting an end costs what it changes: a few Runs and promises")
CROWD_FAILURE_MS = Bar(50.0, "with 1,000 waiting a lost node is recovered before its ranks notice")
CROWD_HEAL_MS = Bar(10.0, "with 1,000 waiting a node that comes back costs the starts that it allows")
CROWD_EDIT_MS = Bar(100.0, "with 1,000 waiting an edited Budget concerns the promises that it pays")
FORECAST_MS = Bar(1_000.0, "all Reservations are computed again between two looks at a screen")
RESOLUTION_MS = Bar(50.0, "a start that was promised to the second is decided well within it")
EXACT_ODDS_MS = Bar(5.0, "every order of six draws: short enough to answer a question")
SIMULATED_ODDS_MS = Bar(200.0, "2,401 simulated draws: short enough to answer a question")
DAY_S = Bar(60.0, "a simulated day in a minute: an administrator tries a change before lunch")
GROWTH_MS = Bar(20.0, "Runs that cannot grow are skipped: a small event stays cheap")
REPAIR_MS = Bar(5.0, "a gang that lost a node is complete again before its ranks notice")
OUTAGE_MS = Bar(1_000.0, "a switch fails and a hundred nodes with it: decided within a second")
SCRAPE_MS = Bar(100.0, "Prometheus asks every 15 seconds: less than a hundredth of one core")
TREE_MS = Bar(10.0, "a tree is a few Runs: its stages are submitted, wait and start like other Runs")

# Load in per cent, or None for ten clusters side by side: CPU seconds of a replay of all jobs.
REPLAY_S = {
    70: Bar(60.0, "100,000 jobs while an administrator waits: several fleets are tried in one meeting"),
    110: Bar(180.0, "the same with hundreds of waiting jobs at any time, each with its promise"),
    None: Bar(120.0, "a fleet of 100,000 GPUs costs a replay no more than its jobs do"),
}
MEMORY_RATIO = Bar(1.1, "memory follows what is alive: twice as many Runs wait, each as large as before")

# Promises where many meet: without outages, but for the one that says so.
FIRM_MISSED_PERCENT = Bar(0.1, "a firm promise is kept: 999 of 1,000")
FIRM_OUTAGES_PERCENT = Bar(3.0, "lost nodes break promises; with outages 97 % of firm ones are kept")
NO_OTHER_REASON = Bar(0.0, "a conditional promise gives way to the owners of its money, and to nothing else")
USE_POINTS = Bar(2.0, "keeping promises costs at most 2 points of the best policy's utilisation")
NOT_RUNNING_RATIO = Bar(1.0, "jobs spend no more time not running than with EASY backfill")
LOST_PERCENT = Bar(1.0, "stops and restarts cost at most a hundredth of the work")
MOST_STOPS = Bar(12.0, "stops of one job are bounded")
OWN_BUDGET_MIN = Bar(30.0, "a team gets back its own budget within one notice, at most maxNotice")
