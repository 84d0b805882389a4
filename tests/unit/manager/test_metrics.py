"""Counters and histograms are compared with the objects in the cluster."""

import msgspec
import pytest

from jobtree.api.schema.quantities import format_time, parse_time
from jobtree.core.lottery.resolution_record import Record, verify
from jobtree.kube.http.api_errors import StatusError
from jobtree.kube.http.api_resources import BUDGETS, RESERVATIONS, RUNS
from jobtree.manager.metrics import ARCHIVE_FAILING, INVARIANTS, METRICS, Metrics
from tests.unit.core.build import H100
from tests.unit.manager.cluster_objects import (
    POLICY,
    TEMPLATE,
    endings,
    finish_pods,
    phase,
    put_budget,
    put_nodes,
    put_policy,
    put_run,
    put_tree,
)
from tests.unit.manager.memory_cluster import Fault, Manager, Server, StoppedError
from tests.unit.manager.metric_samples import Labels, nonzero, samples, value

DOMAIN = "r/c/nv-a"
MINUTE_MS = 60_000
SPEC_NAMES = {
    "jobtree_runs_submitted_total": (),
    "jobtree_runs_admission_latency_seconds": ("flavor", "result"),
    "jobtree_reservations_pending": ("flavor",),
    "jobtree_reservations_backlog_seconds": ("flavor",),
    "jobtree_reservation_eta_seconds": (),
    "jobtree_reservation_promise_error_seconds": (),
    "jobtree_forecast_latency_seconds": (),
    "jobtree_plan_latency_seconds": (),
    "jobtree_resolver_actions_total": ("kind", "flavor", "domain"),
    "jobtree_lottery_draws_total": (),
    "jobtree_preemptions_total": ("flavor", "domain", "reason"),
    "jobtree_budget_concurrency_gpus": ("owner", "budget", "envelope", "flavor", "class"),
    "jobtree_budget_headroom_gpus": ("owner", "budget", "envelope", "flavor"),
    "jobtree_budget_family_headroom_gpus": ("owner", "budget", "envelope", "flavor"),
    "jobtree_budget_gpu_hours": ("owner", "budget", "envelope", "flavor", "kind"),
    "jobtree_fleet_gpus": ("flavor", "domain", "state"),
    "jobtree_invariant_violations_total": ("invariant",),
}


def fleet(nodes: int = 4) -> Server:
    server = Server()
    put_policy(server, POLICY)
    put_nodes(server, "nv-a", nodes)
    put_budget(server, "org", 64)
    put_budget(server, "other", 64)
    return server


def contested() -> tuple[Server, Manager]:
    """Returns a cluster in which one Run holds all GPUs, which another was promised a minute later."""
    server = fleet(nodes=2)
    put_run(server, "first", "org", 16)
    manager = Manager(server)
    manager.settle()
    server.now += MINUTE_MS
    put_run(server, "second", "other", 16)
    manager.settle()
    assert phase(server, "second") == "Reserved"
    return server, manager


def resolver_actions(manager: Manager) -> dict[Labels, float]:
    return samples(manager.metrics.page(), "jobtree_resolver_actions_total", "kind", "flavor", "domain")


def preemptions(manager: Manager) -> dict[Labels, float]:
    return samples(manager.metrics.page(), "jobtree_preemptions_total", "flavor", "domain", "reason")


def latencies(manager: Manager, suffix: str) -> dict[Labels, float]:
    name = f"jobtree_runs_admission_latency_seconds_{suffix}"
    return samples(manager.metrics.page(), name, "flavor", "result")


def errors(manager: Manager) -> dict[str, float]:
    """Returns the starts by the bucket of their promise error, each in its first bucket only."""
    name = "jobtree_reservation_promise_error_seconds_bucket"
    buckets = [(limit, number) for (limit,), number in samples(manager.metrics.page(), name, "le").items()]
    before = [0.0, *(number for _, number in buckets)]
    return {
        limit: number - less for (limit, number), less in zip(buckets, before, strict=False) if number != less
    }


def test_names_and_labels_are_those_of_the_specification() -> None:
    labels_by_name = {metric.name: metric.labels for metric in METRICS}
    assert {name: labels_by_name.get(name) for name in SPEC_NAMES} == SPEC_NAMES


def test_no_metric_has_a_label_of_runs_or_pods() -> None:
    of_runs = {"run", "namespace", "uid", "name", "pod"}
    assert [metric.name for metric in METRICS if of_runs & {*metric.labels}] == []


def test_each_submitted_run_counts_once_but_no_stage() -> None:
    server = fleet()
    put_run(server, "a", "org", 8)
    put_tree(server, "tree", "org")
    manager = Manager(server)
    manager.settle()
    assert len(server.all(RUNS)) == 5
    assert value(manager.metrics.page(), "jobtree_runs_submitted_total") == 2
    put_run(server, "waits", "nobody", 8)
    manager.settle()
    finish_pods(server, "a")
    manager.settle()
    assert value(manager.metrics.page(), "jobtree_runs_submitted_total") == 3
    after = Manager(server)
    put_run(server, "b", "org", 8)
    after.settle()
    assert value(after.metrics.page(), "jobtree_runs_submitted_total") == 1


def test_run_that_starts_and_is_at_risk_in_one_turn_counts_once() -> None:
    server = fleet(nodes=2)
    put_run(server, "first", "org", 16)
    put_run(server, "second", "other", 16)
    manager = Manager(server)
    manager.turn()
    assert server.run("first")["status"]["risk"] != []
    assert value(manager.metrics.page(), "jobtree_runs_submitted_total") == 2


def test_run_that_starts_at_once_has_no_waiting_time() -> None:
    server = fleet()
    put_run(server, "a", "org", 8)
    manager = Manager(server)
    manager.settle()
    assert latencies(manager, "count") == {(H100, "Admitted"): 1}
    assert latencies(manager, "sum") == {(H100, "Admitted"): 0}


def test_waiting_time_ends_with_the_first_start() -> None:
    server, manager = contested()
    server.now += MINUTE_MS
    manager.settle()
    assert (phase(server, "first"), phase(server, "second")) == ("Reserved", "Running")
    assert latencies(manager, "count") == {(H100, "Admitted"): 1, (H100, "Activated"): 1}
    assert latencies(manager, "sum") == {(H100, "Admitted"): 0, (H100, "Activated"): 60}
    finish_pods(server, "second")
    manager.settle()
    assert phase(server, "first") == "Running"
    assert sum(latencies(manager, "count").values()) == 2


def test_waiting_time_of_a_follower_begins_with_the_end_of_its_upstream() -> None:
    server = fleet()
    put_run(server, "first", "org", 8)
    put_run(server, "then", "org", 8, after=["first"])
    manager = Manager(server)
    manager.settle()
    server.now += 5 * MINUTE_MS
    finish_pods(server, "first")
    manager.settle()
    assert phase(server, "then") == "Running"
    assert latencies(manager, "sum") == {(H100, "Admitted"): 0}
    assert latencies(manager, "count") == {(H100, "Admitted"): 2}


def test_time_before_the_end_of_the_upstream_does_not_count_as_waiting() -> None:
    server = fleet(nodes=2)
    put_run(server, "first", "org", 8)
    put_run(server, "then", "org", 16, after=["first"])
    put_policy_slow(server)
    manager = Manager(server)
    manager.settle()
    put_run(server, "blocker", "other", 8)
    manager.settle()
    server.now += 5 * MINUTE_MS
    finish_pods(server, "first")
    manager.settle()
    server.now += 3 * MINUTE_MS
    finish_pods(server, "blocker")
    manager.settle()
    assert phase(server, "then") == "Running"
    assert latencies(manager, "sum") == {(H100, "Admitted"): 180}


def test_lottery_counts_its_draws_and_preemptions() -> None:
    server, manager = contested()
    assert resolver_actions(manager) == preemptions(manager) == {}
    server.now += MINUTE_MS
    manager.settle()
    assert endings(server, "first") == ["RandomPreempt"]
    (reservation,) = [body for body in server.all(RESERVATIONS) if body["status"]["state"] == "Activated"]
    draws = reservation["status"]["lottery"]["decision"]["draws"]
    assert value(manager.metrics.page(), "jobtree_lottery_draws_total") == len(draws) == 1
    assert resolver_actions(manager) == {("Lottery", H100, DOMAIN): 1}
    assert preemptions(manager) == {(H100, DOMAIN, "RandomPreempt"): 1}


def test_takings_count_by_kind() -> None:
    server = fleet(nodes=4)
    put_run(server, "spared", "org", 8, spares=1)
    put_run(server, "elastic", "org", 16, malleable=(8, 16, 8), checkpoint="1m")
    manager = Manager(server)
    manager.settle()
    server.now += MINUTE_MS
    put_run(server, "second", "other", 16)
    manager.settle()
    server.now += MINUTE_MS
    manager.settle()
    assert phase(server, "second") == "Running"
    assert resolver_actions(manager) == {("DropSpares", H100, DOMAIN): 1, ("Shrink", H100, DOMAIN): 1}
    assert preemptions(manager) == {(H100, DOMAIN, "DropSpare"): 1, (H100, DOMAIN, "Shrink"): 1}
    assert value(manager.metrics.page(), "jobtree_lottery_draws_total") == 0


def test_ended_opportunistic_work_counts_as_preemption_and_shrinking_does_not() -> None:
    server = fleet(nodes=2)
    set_gpus(server, "org", 8)
    put_run(server, "unpaid", "org", 16, opportunistic=True)
    manager = Manager(server)
    manager.settle()
    put_run(server, "elastic", "other", 8, malleable=(4, 8, 4), checkpoint="1m")
    manager.settle()
    assert endings(server, "unpaid") == ["Reclaimed"]
    assert preemptions(manager) == {(H100, DOMAIN, "Reclaimed"): 1}
    narrower = {"spec": {"malleable": {"desiredTotalGPUs": 4}}}
    server.change(RUNS.path("ns", "elastic"), narrower, "", merge=True)
    manager.settle()
    assert "Shrink" in endings(server, "elastic")
    assert preemptions(manager) == {(H100, DOMAIN, "Reclaimed"): 1}


def set_gpus(server: Server, budget: str, gpus: int) -> None:
    (envelope,) = server.find(BUDGETS.path(name=budget))["spec"]["envelopes"]
    cut = {"spec": {"envelopes": [{**envelope, "concurrency": gpus}]}}
    server.change(BUDGETS.path(name=budget), cut, "", merge=True)


def test_kept_promise_has_no_error() -> None:
    server, manager = contested()
    (reservation,) = server.all(RESERVATIONS)
    server.now = parse_time(reservation["spec"]["earliestStart"])
    manager.settle()
    assert phase(server, "second") == "Running"
    assert errors(manager) == {"1.0": 1}


def test_run_that_completes_before_its_date_has_a_negative_error() -> None:
    server = fleet(nodes=2)
    put_run(server, "first", "org", 16, max_duration="2h")
    manager = Manager(server)
    manager.settle()
    put_policy_slow(server)
    manager.settle()
    put_run(server, "second", "other", 16)
    manager.settle()
    (reservation,) = server.all(RESERVATIONS)
    early = parse_time(reservation["spec"]["earliestStart"]) - server.now
    assert early > 20 * MINUTE_MS
    finish_pods(server, "first")
    manager.settle()
    finish_pods(server, "second")
    manager.settle()
    assert phase(server, "second") == "Completed"
    assert sum(errors(manager).values()) == 1
    assert float(next(iter(errors(manager)))) * 1000 < 0


def put_policy_slow(server: Server) -> None:
    """Puts a policy with the default notice."""
    path = "/api/v1/namespaces/jobtree-system/configmaps/jobtree-policy"
    server.change(path, {"data": {"policy.yaml": TEMPLATE}}, "", merge=True)


def test_error_of_a_slipped_promise_is_measured_from_its_first_date() -> None:
    server, manager = contested()
    promised = parse_time(server.all(RESERVATIONS)[0]["spec"]["earliestStart"])
    put_policy_slow(server)
    server.change(RUNS.path("ns", "second"), {"spec": {"spares": 1}}, "", merge=True)
    manager.settle()
    (reservation,) = server.all(RESERVATIONS)
    (slip,) = reservation["status"]["slips"]
    assert (slip["reason"], slip["from"]) == ("Edited", format_time(promised))
    server.now = parse_time(reservation["spec"]["earliestStart"])
    manager.settle()
    assert phase(server, "second") == "Running"
    assert 3600 < (server.now - promised) / 1000 < 14400
    assert errors(manager) == {"14400.0": 1}


def test_plans_and_forecasts_are_timed() -> None:
    _, manager = contested()
    page = manager.metrics.page()
    plans, forecasts = (value(page, f"jobtree_{what}_latency_seconds_count") for what in ("plan", "forecast"))
    assert plans >= forecasts > 0
    manager.turn()
    page = manager.metrics.page()
    assert value(page, "jobtree_plan_latency_seconds_count") == plans + 1
    assert value(page, "jobtree_forecast_latency_seconds_count") == forecasts, "nothing changed"


@pytest.mark.parametrize("number", range(1, 12))
def test_decision_counts_once_when_a_write_was_refused(number: int) -> None:
    """A write is refused, as if another writer had been faster."""
    server, manager = contested()
    server.now += MINUTE_MS
    server.fault = Fault(server.writes + number, StatusError(409, "Conflict", "somebody was quicker"))
    manager.settle()
    assert (phase(server, "first"), phase(server, "second")) == ("Reserved", "Running")
    assert preemptions(manager) == {(H100, DOMAIN, "RandomPreempt"): 1}
    assert resolver_actions(manager) == {("Lottery", H100, DOMAIN): 1}
    assert latencies(manager, "count") == {(H100, "Admitted"): 1, (H100, "Activated"): 1}
    assert value(manager.metrics.page(), "jobtree_runs_submitted_total") == 2


def test_counters_begin_at_zero_after_a_crash() -> None:
    server, _ = contested()
    server.now += MINUTE_MS
    crashed = Manager(server, stop_after=1)
    with pytest.raises(StoppedError):
        crashed.settle()
    after = Manager(server)
    after.settle()
    assert phase(server, "second") == "Running"
    assert value(after.metrics.page(), "jobtree_runs_submitted_total") == 0
    assert sum(preemptions(after).values()) <= 1


def test_every_invariant_has_a_series_at_zero() -> None:
    series = samples(Metrics().page(), "jobtree_invariant_violations_total", "invariant")
    assert series == {(name,): 0 for name in INVARIANTS}


def test_failing_archive_is_shown_until_it_works_again() -> None:
    metrics = Metrics()
    shown = []
    for failing in (False, True, False):
        metrics.set_archive_failing(failing=failing)
        shown.append(value(metrics.page(), ARCHIVE_FAILING.name))
    assert shown == [0, 1, 0]


# The log


def test_every_decision_has_a_log_line_with_its_part_and_cause() -> None:
    server, manager = contested()
    server.now += MINUTE_MS
    manager.settle()
    decisions = [(part, line["message"], line["run"], line["cause"]) for part, line in manager.lines]
    assert ("binder", "Start", "ns/first", "Admitted") in decisions
    assert ("forecast", "Reserve", "ns/second", "Reserved") in decisions
    assert ("resolver", "Preempt", "ns/first", "RandomPreempt") in decisions
    assert ("binder", "Start", "ns/second", "Activated") in decisions
    assert len(decisions) == len(set(decisions)), "each decision has one line"
    assert all(line["why"] for _, line in manager.lines)


def test_lottery_has_a_log_line_with_its_seed_and_a_valid_record() -> None:
    server, manager = contested()
    server.now += MINUTE_MS
    manager.settle()
    ((part, line),) = [entry for entry in manager.lines if entry[1]["message"] == "RandomPreempt"]
    (reservation,) = [body for body in server.all(RESERVATIONS) if body["status"]["state"] == "Activated"]
    record = line["record"]
    assert (part, line["losers"], line["reservation"]) == ("resolver", ["ns/first"], "second-1")
    assert isinstance(record, Record)
    assert verify(record) == []
    assert msgspec.json.decode(msgspec.json.encode(record)) == reservation["status"]["lottery"]
    assert line["seed"] == record.seed


def test_zero_is_shown() -> None:
    server = fleet()
    manager = Manager(server)
    manager.settle()
    page = manager.metrics.page()
    assert samples(page, "jobtree_reservations_pending", "flavor") == {(H100,): 0}
    assert nonzero(samples(page, "jobtree_fleet_gpus", "flavor", "domain", "state")) == {
        (H100, DOMAIN, "free"): 32
    }
