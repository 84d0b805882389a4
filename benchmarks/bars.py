"""The bounds, each with where it comes from. A figure without a bar is only reported.

They hold for the full benchmark (100,000 GPUs, 85 % in use) on 2 cores at 2.8 GHz with CPython 3.11.
``seen`` is the worst figure of a run there, on a machine of which others used half: the rest is margin.
"""

import msgspec


class Bar(msgspec.Struct, frozen=True):
    limit: float
    source: str
    seen: float

    def holds(self, value: float) -> bool:
        return value <= self.limit


INSTANT = "submitting feels instant: up to 128 GPUs are decided in less time than the request takes to arrive"
LARGE = "a gang of 1,024 GPUs touches 128 nodes and a family of payers: three times as long"
TAIL = "one arrival in a hundred may meet holes, payers or the collector at their worst"

# GPUs of one arrival: milliseconds of put_run and plan, p50 and p99.
DECIDE_MS = {
    8: (Bar(1.0, INSTANT, 0.24), Bar(5.0, TAIL, 0.59)),
    128: (Bar(1.0, INSTANT, 0.56), Bar(5.0, TAIL, 1.8)),
    1024: (Bar(3.0, LARGE, 3.1), Bar(10.0, TAIL, 8.0)),
}

FLEET_RATIO = Bar(
    1.5,
    "a decision costs what it changes, not what exists: ten times the fleet, at most half as much again",
    1.06,
)
CLOSED_RATIO = Bar(1.2, "closed leases leave only their sums behind; the rest is the noise of a machine", 1.0)
RESERVATION_MS = Bar(20.0, "a full fleet is when most Runs arrive: each gets its promise at once", 55.0)
FORECAST_MS = Bar(1_000.0, "all promises are written anew between two looks at a screen", 490.0)
RESOLUTION_MS = Bar(50.0, "a start that was promised to the second is decided well within it", 3.0)
EXACT_ODDS_MS = Bar(5.0, "every order of six draws: short enough to answer a question with", 1.9)
SIMULATED_ODDS_MS = Bar(200.0, "2,401 drawings: short enough to answer a question with", 230.0)
DAY_S = Bar(60.0, "a simulated day in a minute: an administrator tries a change before lunch", 13.0)
GROWTH_MS = Bar(20.0, "who cannot grow and knows it is passed over: a small event stays a small one", 88.2)
REPAIR_MS = Bar(5.0, "a gang that lost a node is whole again before its ranks have noticed", 56.1)
OUTAGE_MS = Bar(1_000.0, "a switch fails and a hundred nodes with it: decided within a second", 1_142.0)
SCRAPE_MS = Bar(100.0, "Prometheus asks every 15 seconds: less than a hundredth of one core", 40.0)
TREE_MS = Bar(10.0, "a tree is a few Runs: its stages come, wait and start like those", 8.0)
