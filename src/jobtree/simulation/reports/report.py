"""The report of a replay: figures with stable names, for people, scripts and comparisons.

Shares are between 0 and 1, times in seconds, amounts in GPU-hours. Waiting is the time to the first start;
completion is from submission to the end. Not running is completion less the work's own duration: all waits,
restarts and work that was done again. Slowdown is completion over the work's own duration (of ten seconds at
least). Fragmentation is the part of idle GPUs that sit beside busy ones on their node. Fairness is Jain's
index over the part that each team got of what it asked for within its budget, at most all of it.
"""

from typing import Literal

import msgspec

from jobtree.api.schema.object_meta import Wire

DECIMALS = 6


class Spread(Wire):
    mean: float
    p50: float
    p90: float
    p99: float


class Times(Wire):
    """The times of a class of jobs."""

    name: str
    jobs: int
    wait_seconds: Spread
    completion_seconds: Spread
    not_running_seconds: Spread
    slowdown: Spread


class ReplayInputs(Wire):
    """The trace and the fleet of the replay."""

    policy: str
    trace: str
    jobs: int
    skipped_rows: dict[str, int]
    work_gpu_hours: float
    nodes: int
    gpus: int
    domains: int
    budgets: dict[str, int]  # GPUs by team
    pod_gpus: int  # the pod size with the most work
    declares: str
    checkpoint_seconds: float | None
    on_notice: Literal["Ignore", "Checkpoint"]
    restart_cost_seconds: float
    outages: int
    seed: int
    what_if: tuple[str, ...]


class FleetUsage(Wire):
    """The use of the fleet while jobs arrive."""

    hours: float
    capacity_gpu_hours: float
    allocated_gpu_hours: float
    useful_gpu_hours: float
    allocated: float
    useful: float
    fragmentation: float


class KeptPromises(Wire):
    """Promises of one confidence whose date has passed."""

    dated: int
    kept: int
    kept_share: float


class PromiseStatistics(Wire):
    """Kept: at the earliest date ever shown the Run had finished, or ran, paid, and was not stopped soon."""

    made: int
    dated: int
    kept: int
    broken: int
    slipped: int
    withdrawn: int
    kept_share: float
    firm: KeptPromises
    conditional: KeptPromises
    promised_wait_seconds: Spread  # from the creation of the Run to the date
    error_seconds: Spread
    slip_reasons: dict[str, int]
    broken_reasons: dict[str, int]


class EstimateStatistics(Wire):
    """The shares of Runs with an expected start that started by p50 and by p90."""

    told: int
    by_p50: float
    by_p90: float


class StopStatistics(Wire):
    reason: str
    count: int
    lost_gpu_hours: float


class StoppedJobs(Wire):
    """How often jobs were stopped, by anything. A row is that of the trace."""

    stops_per_job: float
    jobs: int
    most_stops: int
    most_stops_row: int | None
    longest_not_running_seconds: float
    longest_not_running_row: int | None


class BudgetUse(Wire):
    """The grant of the budgets of a team, and the use of its jobs by any payer, while jobs arrive."""

    team: str
    granted_gpus: int
    unusable_gpus: int  # of these, what no pod of the usual size can use
    granted_gpu_hours: float
    used_gpu_hours: float
    use: float


class Series(Wire):
    """Means of equal steps of time, from the first submission."""

    step_seconds: float
    allocated: tuple[float, ...]
    capacity: tuple[float, ...]
    waiting: tuple[float, ...]
    used_gpu_hours: dict[str, tuple[float, ...]]  # by team, summed up from the beginning


class Result(Wire):
    finished: int
    unfinished: int
    makespan_hours: float
    fleet: FleetUsage
    all_jobs: Times
    by_size: tuple[Times, ...]
    by_team: tuple[Times, ...]
    promises: PromiseStatistics | None
    expected: EstimateStatistics | None
    stops: tuple[StopStatistics, ...]
    stopped_jobs: StoppedJobs
    restart_gpu_hours: float
    lost_share: float  # of all work done, with what stops lost and restarts cost
    budgets: tuple[BudgetUse, ...]
    fairness: float
    series: Series
    wait_quantiles: tuple[float, ...]  # seconds, for 0, 1, …, 100 per cent of jobs
    promise_errors: tuple[float, ...]  # seconds, the same way


class Report(Wire):
    api_version: str
    kind: Literal["Report"]
    spec: ReplayInputs
    status: Result


def rounded(value: float) -> float:
    """Rounds a figure, so that a report is the same on every machine."""
    return round(value, DECIMALS) + 0.0


def encode_report(report: Report) -> bytes:
    """Returns the report as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"
