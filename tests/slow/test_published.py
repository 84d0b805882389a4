"""Replays give the means that were published for the same jobs and rules (SC'21, Philly)."""

import os
from pathlib import Path
from statistics import fmean

import pytest

from jobtree.api.schema.quantities import SECOND
from jobtree.simulation.inputs.job_trace import Cut, read_trace
from jobtree.simulation.inputs.replay_cluster import made_up, made_up_budgets
from jobtree.simulation.inputs.replay_setup import ReplaySetup
from jobtree.simulation.replay.saved_replay import run
from jobtree.simulation.schedulers.scheduler_names import POLICIES

REPOSITORY = Path(__file__).parents[2]
TRACES = Path(os.environ.get("JOBTREE_TRACES", REPOSITORY.parent / "shared" / "traces"))
JOBS = TRACES / "philly_vc4" / "jobs.csv.gz"
FROM_DAY, TO_DAY = 55, 116
DAY_S = 86_400


@pytest.mark.skipif(
    not JOBS.exists(), reason=f"{JOBS} does not exist: JOBTREE_TRACES must name the folder of traces"
)
@pytest.mark.parametrize(
    ("cluster", "nodes", "policy", "completion", "queue"),
    [
        ("7f04ca", 32, "fifo", 133_826, 1_412),
        ("7f04ca", 32, "sjf", 133_271, 857),
        ("2869ce", 16, "fifo", 70_215, 21_171),
        ("0e4a51", 32, "sjf", 168_747, 36_682),
    ],
)
def test_replay_gives_the_published_means(
    cluster: str, nodes: int, policy: str, completion: int, queue: int
) -> None:
    cut = Cut((("user_or_team", cluster),), FROM_DAY * DAY_S, TO_DAY * DAY_S)
    fleet, trace = made_up(nodes, 8, 1), read_trace(str(JOBS), nodes * 8, cut)
    budgets, owners = made_up_budgets(trace, fleet.nodes, {})
    simulation = POLICIES[policy](ReplaySetup(trace, fleet.nodes, budgets, owners, fleet.epoch))
    assert run(simulation)
    meter, jobs = simulation.meter, range(len(trace))
    mean_completion = fmean((meter.finish[job] - trace.submit[job]) / SECOND for job in jobs)
    mean_queue = fmean((meter.first_start[job] - trace.submit[job]) / SECOND for job in jobs)
    tolerance = 0.5 if cluster == "7f04ca" else 1.0  # published in whole seconds
    assert abs(mean_completion - completion) <= tolerance
    assert abs(mean_queue - queue) <= tolerance
