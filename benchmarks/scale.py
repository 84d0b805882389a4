"""The sizes of the measured fleets."""

import msgspec


class Scale(msgspec.Struct, frozen=True):
    name: str
    nodes: int
    domains: int
    budgets: int  # one for the organisation, one per ten for divisions, the rest for teams
    closed_leases: int
    free_percent: int = 15  # of the GPUs, once the fleet was full and Runs have ended
    gpus_per_node: int = 8

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def divisions(self) -> int:
        return max(1, self.budgets // 10)

    @property
    def teams(self) -> int:
        return self.budgets - self.divisions - 1


class Effort(msgspec.Struct, frozen=True):
    """The size of a benchmark: the fleets to compare, and the number of measurements of each kind."""

    large: Scale
    small: Scale
    few_closed: int  # closed leases of the large fleet, for comparison
    gpus: tuple[int, ...]  # sizes of the arrivals
    arrivals: int  # of each kind
    refusals: int
    burst: int
    waiting: int  # while the fleet is full
    eager: int  # malleable Runs that want to grow while the fleet is full
    day: int  # arrivals of a simulated day
    replayed: int  # jobs of a trace
    queued: int  # Runs of a replay whose memory is measured
    traces: int  # small ones whose promises are counted
    crowds: int  # of each kind whose promises are counted
    crowd_jobs: int
    events: int  # of each other kind
    judged: bool  # whether the bars apply


FULL = Effort(
    large=Scale("large", nodes=12_500, domains=400, budgets=200, closed_leases=50_000),
    # With more of it free, or 1,024 GPUs would nearly fill it and search for every hole.
    small=Scale("a tenth", nodes=1_250, domains=40, budgets=20, closed_leases=5_000, free_percent=20),
    few_closed=5_000,
    gpus=(8, 128, 1024),
    arrivals=300,
    refusals=500,
    burst=1_000,
    waiting=1_000,
    eager=5_000,
    day=10_000,
    replayed=100_000,
    queued=100,
    traces=200,
    crowds=2,
    crowd_jobs=600,
    events=50,
    judged=True,
)
QUICK = Effort(
    large=Scale("quick", nodes=1_000, domains=32, budgets=20, closed_leases=2_000),
    small=Scale("a quarter", nodes=250, domains=8, budgets=5, closed_leases=500),
    few_closed=200,
    gpus=(8, 128),
    arrivals=40,
    refusals=40,
    burst=50,
    waiting=20,
    eager=200,
    day=300,
    replayed=300,
    queued=16,
    traces=3,
    crowds=1,
    crowd_jobs=60,
    events=5,
    judged=False,
)
