"""Computes the report of a replay from its measurements."""

from collections.abc import Sequence
from itertools import accumulate

from jobtree.api.kinds.policy import SIM_API_VERSION
from jobtree.api.schema.quantities import HOUR, SECOND
from jobtree.core import PromiseCount, default_pod_size
from jobtree.simulation.inputs.replay_setup import ReplaySetup
from jobtree.simulation.replay.engine import Simulation
from jobtree.simulation.replay.estimate_log import EstimateLog
from jobtree.simulation.replay.meter import NEVER, Meter
from jobtree.simulation.replay.promise_log import PromiseLog
from jobtree.simulation.reports.report import (
    BudgetUse,
    EstimateStatistics,
    FleetUsage,
    KeptPromises,
    PromiseStatistics,
    ReplayInputs,
    Report,
    Result,
    Series,
    Spread,
    StoppedJobs,
    StopStatistics,
    Times,
    rounded,
)
from jobtree.simulation.schedulers.jobtree_scheduler import JobtreeScheduler

SIZES = ((1, 1), (2, 4), (5, 8), (9, 16), (17, 32), (33, 64), (65, 1 << 30))
SHORTEST = 10 * SECOND  # for slowdowns: what takes no time must not count for everything


def report_of(simulation: Simulation, policy: str, trace_name: str, what_if: Sequence[str] = ()) -> Report:
    setup, meter = simulation.setup, simulation.meter
    return Report(
        api_version=SIM_API_VERSION,
        kind="Report",
        spec=given(setup, policy, trace_name, what_if),
        status=result(setup, meter, simulation if isinstance(simulation, JobtreeScheduler) else None),
    )


def given(setup: ReplaySetup, policy: str, trace_name: str, what_if: Sequence[str]) -> ReplayInputs:
    trace, behavior = setup.trace, setup.behavior
    work = sum(gpus * duration for gpus, duration in zip(trace.gpus, trace.duration, strict=True))
    return ReplayInputs(
        policy=policy,
        trace=trace_name,
        jobs=len(trace),
        skipped_rows=dict(sorted(trace.skipped.items())),
        work_gpu_hours=rounded(work / HOUR),
        nodes=len(setup.nodes),
        gpus=setup.gpus,
        domains=len({node.domain for node in setup.nodes}),
        budgets=dict(zip(trace.teams, setup.granted(), strict=True)),
        pod_gpus=usual_pod_size(setup),
        declares=behavior.declares,
        checkpoint_seconds=None if behavior.checkpoint is None else rounded(behavior.checkpoint / SECOND),
        on_notice="Checkpoint" if behavior.notice else "Ignore",
        restart_cost_seconds=rounded(behavior.restart_cost / SECOND),
        outages=len(setup.outages),
        seed=behavior.seed,
        what_if=tuple(what_if),
    )


def result(setup: ReplaySetup, meter: Meter, jobtree: JobtreeScheduler | None) -> Result:
    trace, promises = setup.trace, jobtree.promises if jobtree else None
    done = [job for job in range(len(trace)) if meter.finish[job] != NEVER]
    budgets = budget_uses(setup, meter)
    lost = sum(stops.lost for stops in meter.stops.values()) + meter.restart_lost
    return Result(
        finished=len(done),
        unfinished=len(trace) - len(done),
        makespan_hours=rounded(
            (max((meter.finish[job] for job in done), default=meter.begin) - meter.begin) / HOUR
        ),
        fleet=fleet(meter),
        all_jobs=times("all", meter, done),
        by_size=by_size(meter, done),
        by_team=by_team(meter, done),
        promises=None if promises is None else promise_statistics(promises),
        expected=calibrated(jobtree.estimates) if jobtree and jobtree.estimates.started else None,
        stops=tuple(
            StopStatistics(reason=reason, count=stops.count, lost_gpu_hours=rounded(stops.lost / HOUR))
            for reason, stops in sorted(meter.stops.items())
        ),
        stopped_jobs=stopped_jobs(meter, done),
        restart_gpu_hours=rounded(meter.restart_lost / HOUR),
        lost_share=rounded(lost / (lost + work_done(meter, done))) if done else 0.0,
        budgets=budgets,
        fairness=rounded(fairness(meter, budgets)),
        series=series(meter),
        wait_quantiles=quantiles([meter.first_start[job] - trace.submit[job] for job in done]),
        promise_errors=quantiles(promises.errors if promises else ()),
    )


def work_done(meter: Meter, done: Sequence[int]) -> int:
    return sum(meter.trace.gpus[job] * meter.trace.duration[job] for job in done)


def fleet(meter: Meter) -> FleetUsage:
    capacity, used = meter.capacity.in_window, meter.used.in_window
    useful, idle = used - meter.lost_in_window, capacity - used
    return FleetUsage(
        hours=rounded((meter.end - meter.begin) / HOUR),
        capacity_gpu_hours=rounded(capacity / HOUR),
        allocated_gpu_hours=rounded(used / HOUR),
        useful_gpu_hours=rounded(useful / HOUR),
        allocated=rounded(used / capacity) if capacity else 0.0,
        useful=rounded(useful / capacity) if capacity else 0.0,
        fragmentation=rounded(meter.stranded.in_window / idle) if idle else 0.0,
    )


# Times of jobs


def by_size(meter: Meter, done: Sequence[int]) -> tuple[Times, ...]:
    classes = []
    for least, most in SIZES:
        jobs = [job for job in done if least <= meter.trace.gpus[job] <= most]
        name = str(least) if least == most else f"{least}+" if most == SIZES[-1][1] else f"{least}-{most}"
        classes += [times(name, meter, jobs)] if jobs else []
    return tuple(classes)


def by_team(meter: Meter, done: Sequence[int]) -> tuple[Times, ...]:
    jobs: dict[int, list[int]] = {}
    for job in done:
        jobs.setdefault(meter.trace.team[job], []).append(job)
    return tuple(times(name, meter, jobs[at]) for at, name in enumerate(meter.trace.teams) if at in jobs)


def times(name: str, meter: Meter, jobs: Sequence[int]) -> Times:
    trace = meter.trace
    completions = [meter.finish[job] - trace.submit[job] for job in jobs]
    slowdowns = [
        completion / max(trace.duration[job], SHORTEST)
        for job, completion in zip(jobs, completions, strict=True)
    ]
    return Times(
        name=name,
        jobs=len(jobs),
        wait_seconds=spread([(meter.first_start[job] - trace.submit[job]) / SECOND for job in jobs]),
        completion_seconds=spread([completion / SECOND for completion in completions]),
        not_running_seconds=spread([not_running(meter, job) / SECOND for job in jobs]),
        slowdown=spread([max(1.0, slowdown) for slowdown in slowdowns]),
    )


def not_running(meter: Meter, job: int) -> int:
    """The milliseconds from submission to the end in which a job did not do what counts for its end."""
    return meter.finish[job] - meter.trace.submit[job] - meter.trace.duration[job]


def stopped_jobs(meter: Meter, done: Sequence[int]) -> StoppedJobs:
    trace, stopped = meter.trace, meter.stopped
    most = max(range(len(trace)), key=lambda job: (stopped[job], -job))
    longest = max(done, key=lambda job: (not_running(meter, job), -job), default=None)
    return StoppedJobs(
        stops_per_job=rounded(sum(stopped) / len(trace)),
        jobs=sum(count > 0 for count in stopped),
        most_stops=stopped[most],
        most_stops_row=trace.row[most] if stopped[most] else None,
        longest_not_running_seconds=0.0 if longest is None else rounded(not_running(meter, longest) / SECOND),
        longest_not_running_row=None if longest is None else trace.row[longest],
    )


def spread(values: Sequence[float]) -> Spread:
    if not values:
        return Spread(mean=0.0, p50=0.0, p90=0.0, p99=0.0)
    ordered = sorted(values)
    p50, p90, p99 = (rounded(at_share(ordered, percent)) for percent in (50, 90, 99))
    return Spread(mean=rounded(sum(ordered) / len(ordered)), p50=p50, p90=p90, p99=p99)


def at_share(ordered: Sequence[float], percent: int) -> float:
    """Returns the smallest value that this percentage of the values does not exceed."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def quantiles(milliseconds: Sequence[int]) -> tuple[float, ...]:
    ordered = sorted(milliseconds)
    return tuple(rounded(at_share(ordered, percent) / SECOND) for percent in range(101)) if ordered else ()


# Promises, budgets, fairness


def promise_statistics(promises: PromiseLog) -> PromiseStatistics:
    counts = (promises.firm, promises.conditional)
    kept, broken = sum(count.kept for count in counts), sum(count.broken for count in counts)
    return PromiseStatistics(
        made=promises.made,
        dated=kept + broken,
        kept=kept,
        broken=broken,
        slipped=promises.slipped,
        withdrawn=promises.withdrawn,
        kept_share=share_kept(kept, broken),
        firm=kept_promises(promises.firm),
        conditional=kept_promises(promises.conditional),
        promised_wait_seconds=spread([wait / SECOND for wait in promises.promised_waits]),
        error_seconds=spread([error / SECOND for error in promises.errors]),
        slip_reasons=dict(sorted(promises.slip_reasons.items())),
        broken_reasons=dict(sorted(promises.broken_reasons.items())),
    )


def kept_promises(count: PromiseCount) -> KeptPromises:
    return KeptPromises(
        dated=count.kept + count.broken, kept=count.kept, kept_share=share_kept(count.kept, count.broken)
    )


def share_kept(kept: int, broken: int) -> float:
    return rounded(kept / (kept + broken)) if kept + broken else 1.0


def calibrated(estimates: EstimateLog) -> EstimateStatistics:
    estimated = estimates.started
    return EstimateStatistics(
        told=estimated,
        by_p50=rounded(estimates.by_p50 / estimated),
        by_p90=rounded(estimates.by_p90 / estimated),
    )


def usual_pod_size(setup: ReplaySetup) -> int:
    """The pod size with the most work in the trace; of equals, the smallest."""
    biggest_node = max(node.gpus for node in setup.nodes)
    work: dict[int, int] = {}
    for gpus, duration in zip(setup.trace.gpus, setup.trace.duration, strict=True):
        size = default_pod_size(gpus, biggest_node)
        work[size] = work.get(size, 0) + gpus * duration
    return min(work, key=lambda size: (-work[size], size))


def budget_uses(setup: ReplaySetup, meter: Meter) -> tuple[BudgetUse, ...]:
    unusable = setup.unusable(usual_pod_size(setup))
    hours = setup.granted_gpu_time(meter.begin, meter.end)
    return tuple(
        BudgetUse(
            team=team,
            granted_gpus=gpus,
            unusable_gpus=crumbs,
            granted_gpu_hours=rounded(granted / HOUR),
            used_gpu_hours=rounded(level.in_window / HOUR),
            use=rounded(level.in_window / granted) if granted else 0.0,
        )
        for team, gpus, crumbs, granted, level in zip(
            meter.trace.teams, setup.granted(), unusable, hours, meter.by_team, strict=True
        )
    )


def fairness(meter: Meter, budgets: Sequence[BudgetUse]) -> float:
    """Returns Jain's index: 1 if all teams got the same share of their grant, 1/n if one team got all."""
    trace = meter.trace
    asked = [0.0] * len(trace.teams)
    for job in range(len(trace)):
        most = max(0, min(trace.duration[job], meter.end - trace.submit[job]))
        asked[trace.team[job]] += trace.gpus[job] * most / HOUR
    got = [
        min(1.0, budget.used_gpu_hours / entitled)
        for budget, wanted in zip(budgets, asked, strict=True)
        if (entitled := min(wanted, budget.granted_gpu_hours)) > 0
    ]
    squares = sum(part * part for part in got)
    return sum(got) ** 2 / (len(got) * squares) if squares else 1.0


def series(meter: Meter) -> Series:
    step_hours = meter.step / HOUR
    steps = max(level.steps for level in (meter.used, meter.capacity, meter.waiting))
    used, capacity, waiting = (
        tuple(map(rounded, level.means(steps))) for level in (meter.used, meter.capacity, meter.waiting)
    )
    return Series(
        step_seconds=rounded(meter.step / SECOND),
        allocated=used,
        capacity=capacity,
        waiting=waiting,
        used_gpu_hours={
            team: tuple(rounded(gpus * step_hours) for gpus in accumulate(level.means(steps)))
            for team, level in zip(meter.trace.teams, meter.by_team, strict=True)
        },
    )
