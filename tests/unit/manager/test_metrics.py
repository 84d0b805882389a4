"""Counters and histograms compared with what happened, as the objects in the cluster tell it."""

import msgspec
import pytest

from jobtree.api.schema.quantities import format_time, parse_time
from jobtree.core.lottery.resolution_record import Record, verify
from jobtree.kube.http.api_errors import StatusError
from jobtree.kube.http.api_resources import BUDGETS, RESERVATIONS, RUNS
from jobtree.manager.metrics import ARCHIVE_FAILING, INVARIANTS, METRICS, Metrics
from tests.unit.core.build import H100
from tests.unit.manager.cluster import Fault, Manager, Server, StoppedError
from tests.unit.manager.samples import Labels, nonzero, samples, value
from tests.unit.manager.stage import (
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
    """One Run holds all GPUs; a minute later, somebody else is promised them."""
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
    """Starts by what they missed their promise by: only the first bucket that each is in."""
    name = "jobtree_reservation_promise_error_seconds_bucket"
    found = [(limit, number) for (limit,), number in samples(manager.metrics.page(), name, "le").items()]
    before = [0.0, *(number for _, number in found)]
    return {
        limit: number - less for (limit, number), less in zip(found, before, strict=False) if number != less
    }


def test_names_and_labels_are_those_of_the_specification() -> None:
    known = {metric.name: metric.labels for metric in METRICS}
    assert {name: known.get(name) for name in SPEC_NAMES} == SPEC_NAMES


def test_no_metric_is_told_apart_by_run() -> None:
    assert [one.name for one in METRICS if {"run", "namespace", "uid", "name", "pod"} & {*one.labels}] == []


def test_runs_count_once_when_they_come_whoever_leads_and_stages_do_not() -> None:
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


def test_a_run_that_starts_and_is_warned_in_one_step_came_once() -> None:
    server = fleet(nodes=2)
    put_run(server, "first", "org", 16)
    put_run(server, "second", "other", 16)
    manager = Manager(server)
    manager.turn()
    assert server.run("first")["status"]["risk"] != []
    assert value(manager.metrics.page(), "jobtree_runs_submitted_total") == 2


def test_a_run_that_starts_at_once_waited_for_nothing() -> None:
    server = fleet()
    put_run(server, "a", "org", 8)
    manager = Manager(server)
    manager.settle()
    assert latencies(manager, "count") == {(H100, "Admitted"): 1}
    assert latencies(manager, "sum") == {(H100, "Admitted"): 0}


def test_waiting_counts_up_to_the_first_start_and_not_again_after_a_lottery() -> None:
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


def test_a_run_that_follows_another_waits_from_its_end() -> None:
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


def test_what_came_before_the_end_of_that_other_is_no_waiting() -> None:
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


def test_a_lottery_counts_its_draws_and_what_it_took() -> None:
    server, manager = contested()
    assert resolver_actions(manager) == preemptions(manager) == {}
    server.now += MINUTE_MS
    manager.settle()
    assert endings(server, "first") == ["RandomPreempt"]
    (reservation,) = [one for one in server.all(RESERVATIONS) if one["status"]["state"] == "Activated"]
    draws = reservation["status"]["lottery"]["decision"]["draws"]
    assert value(manager.metrics.page(), "jobtree_lottery_draws_total") == len(draws) == 1
    assert resolver_actions(manager) == {("Lottery", H100, DOMAIN): 1}
    assert preemptions(manager) == {(H100, DOMAIN, "RandomPreempt"): 1}


def test_cuts_count_by_kind() -> None:
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


def test_unpaid_work_that_goes_is_a_preemption_and_what_its_owner_asked_for_is_none() -> None:
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


def test_a_promise_that_is_kept_missed_nothing() -> None:
    server, manager = contested()
    (reservation,) = server.all(RESERVATIONS)
    server.now = parse_time(reservation["spec"]["earliestStart"])
    manager.settle()
    assert phase(server, "second") == "Running"
    assert errors(manager) == {"1.0": 1}


def test_a_start_before_its_promise_counts_as_sooner() -> None:
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
    assert phase(server, "second") == "Running"
    assert sum(errors(manager).values()) == 1
    assert float(next(iter(errors(manager)))) * 1000 < 0


def put_policy_slow(server: Server) -> None:
    """The rules as they are unless somebody is in a hurry."""
    path = "/api/v1/namespaces/jobtree-system/configmaps/jobtree-policy"
    server.change(path, {"data": {"policy.yaml": TEMPLATE}}, "", merge=True)


def test_a_promise_that_slipped_is_measured_from_what_was_promised_first() -> None:
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
def test_what_was_refused_is_not_counted_and_what_was_written_is_counted_once(number: int) -> None:
    """One write after the other is refused, as if somebody else had been quicker."""
    server, manager = contested()
    server.now += MINUTE_MS
    server.fault = Fault(server.writes + number, StatusError(409, "Conflict", "somebody was quicker"))
    manager.settle()
    assert (phase(server, "first"), phase(server, "second")) == ("Reserved", "Running")
    assert preemptions(manager) == {(H100, DOMAIN, "RandomPreempt"): 1}
    assert resolver_actions(manager) == {("Lottery", H100, DOMAIN): 1}
    assert latencies(manager, "count") == {(H100, "Admitted"): 1, (H100, "Activated"): 1}
    assert value(manager.metrics.page(), "jobtree_runs_submitted_total") == 2


def test_after_a_crash_counting_begins_anew_and_nothing_is_counted_twice() -> None:
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


def test_every_invariant_has_a_series_before_it_is_broken() -> None:
    found = samples(Metrics().page(), "jobtree_invariant_violations_total", "invariant")
    assert found == {(name,): 0 for name in INVARIANTS}


def test_a_failing_archive_is_shown_until_it_works_again() -> None:
    metrics = Metrics()
    shown = []
    for failing in (False, True, False):
        metrics.set_archive_failing(failing=failing)
        shown.append(value(metrics.page(), ARCHIVE_FAILING.name))
    assert shown == [0, 1, 0]


# The log


def test_every_decision_is_a_line_with_its_part_and_cause() -> None:
    server, manager = contested()
    server.now += MINUTE_MS
    manager.settle()
    told = [(part, line["message"], line["run"], line["cause"]) for part, line in manager.lines]
    assert ("binder", "Start", "ns/first", "Admitted") in told
    assert ("forecast", "Reserve", "ns/second", "Reserved") in told
    assert ("resolver", "Preempt", "ns/first", "RandomPreempt") in told
    assert ("binder", "Start", "ns/second", "Activated") in told
    assert len(told) == len(set(told)), "each once"
    assert all(line["why"] for _, line in manager.lines)


def test_a_lottery_is_a_line_with_its_seed_and_a_record_that_proves_itself() -> None:
    server, manager = contested()
    server.now += MINUTE_MS
    manager.settle()
    ((part, line),) = [one for one in manager.lines if one[1]["message"] == "RandomPreempt"]
    (reservation,) = [one for one in server.all(RESERVATIONS) if one["status"]["state"] == "Activated"]
    record = line["record"]
    assert (part, line["losers"], line["reservation"]) == ("resolver", ["ns/first"], "second-1")
    assert isinstance(record, Record)
    assert verify(record) == []
    assert msgspec.json.decode(msgspec.json.encode(record)) == reservation["status"]["lottery"]
    assert line["seed"] == record.seed


def test_zero_is_a_figure() -> None:
    server = fleet()
    manager = Manager(server)
    manager.settle()
    page = manager.metrics.page()
    assert samples(page, "jobtree_reservations_pending", "flavor") == {(H100,): 0}
    assert nonzero(samples(page, "jobtree_fleet_gpus", "flavor", "domain", "state")) == {
        (H100, DOMAIN, "free"): 32
    }
