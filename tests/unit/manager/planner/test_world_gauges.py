"""Gauges are compared with sums over the objects in the cluster."""

import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from jobtree.api.schema.quantities import parse_milli, parse_slots, parse_time
from jobtree.kube.http.api_resources import BUDGETS, LEASES, NODES, RESERVATIONS, RUNS
from jobtree.manager.metrics import METRICS, PREEMPTIONS, RESOLVER, Metrics
from jobtree.manager.planner import world_gauges
from jobtree.manager.planner.world_gauges import WorldGauges
from tests.unit.core.build import H100
from tests.unit.manager.cluster_objects import TEMPLATE, put_budget, put_nodes, put_policy, put_run
from tests.unit.manager.memory_cluster import Body, Manager, Server
from tests.unit.manager.metric_samples import Labels, nonzero, samples, value

HOUR_MS = 3_600_000
ENVELOPE = ("owner", "budget", "envelope", "flavor")
LENDING = {"allow": True, "to": ["*"]}


def busy_cluster() -> Server:
    """Returns a server with GPUs of every class, role and state, and promises with and without a date."""
    server = Server()
    put_policy(server, TEMPLATE)
    put_nodes(server, "nv-a", 7)
    put_nodes(server, "nv-b", 2)
    server.change("/api/v1/nodes/nv-b-01", {"spec": {"unschedulable": True}}, "", merge=True)
    put_foreign_pod(server, "nv-b-00", 3)
    put_budget(server, "org", 22, maxGPUHours=1000)
    put_budget(server, "org:child", 8, sharing="none")
    put_budget(server, "lender", 8, lending=LENDING)
    put_run(server, "spared", "org", 8, spares=2, max_duration="10h")
    put_run(server, "shared", "org:child", 16, max_duration="20h")
    put_run(server, "borrows", "stranger", 8, sponsors=["lender"])
    return server


def late_comers(server: Server) -> None:
    for name, gpus in (("unpaid", 8), ("on-spares", 4)):
        put_run(server, name, "org:child", gpus, opportunistic=True)
    put_run(server, "waits", "org", 16)
    put_run(server, "never", "nobody", 8)


def put_foreign_pod(server: Server, node: str, gpus: int) -> None:
    requests = {"requests": {"nvidia.com/gpu": str(gpus)}}
    server.create(
        "/api/v1/namespaces/kube-system/pods",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"other-{node}", "namespace": "kube-system", "labels": {}},
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": requests}]},
            "status": {"phase": "Running"},
        },
    )


@pytest.fixture(scope="module")
def manager() -> Manager:
    server = busy_cluster()
    manager = Manager(server)
    manager.settle()
    server.now += HOUR_MS
    late_comers(server)
    manager.settle()
    server.now += HOUR_MS // 2  # and nobody plans meanwhile
    return manager


@pytest.fixture(scope="module")
def page(manager: Manager) -> bytes:
    return manager.metrics.page()


def leases(server: Server) -> Iterator[tuple[Body, Labels, str, float]]:
    """Yields the spec of each lease, the labels of its payer, its column, and its charge in GPUs."""
    for lease in server.all(LEASES):
        spec = lease["spec"]
        payer = spec["payer"]
        gpus = sum(mask.bit_count() for mask in parse_slots(spec["slots"]).values())
        labels = (payer["owner"], payer["budget"], payer["envelope"], spec["flavor"])
        column = "spare" if spec["role"] == "Spare" else spec["class"].lower()
        charged = gpus if spec["role"] == "Opportunistic" else gpus * parse_milli(spec["rate"]) / 1000
        yield lease, labels, column, charged


def test_budget_gauges_are_the_charges_of_open_leases(manager: Manager, page: bytes) -> None:
    open_now: dict[Labels, float] = {}
    for lease, labels, column, gpus in leases(manager.server):
        if "end" not in lease.get("status", {}):
            open_now[*labels, column] = open_now.get((*labels, column), 0) + gpus
    series = samples(page, "jobtree_budget_concurrency_gpus", *ENVELOPE, "class")
    assert nonzero(series) == open_now
    assert {column for *_, column in open_now} >= {"owned", "shared", "borrowed", "spare", "opportunistic"}
    assert len(series) == 3 * 5, "three envelopes, five classes each"


def test_headroom_is_the_figure_of_the_status(manager: Manager, page: bytes) -> None:
    owner, family = dict[Labels, float](), dict[Labels, float]()
    for budget in manager.server.all(BUDGETS):
        usages = zip(budget["spec"]["envelopes"], budget["status"]["envelopes"], strict=True)
        for envelope, usage in usages:
            labels = (
                budget["spec"]["owner"],
                budget["metadata"]["name"],
                envelope["name"],
                envelope["flavor"],
            )
            owner[labels] = int(usage["freeGPUs"])
            if "familyFreeGPUs" in usage:
                family[labels] = int(usage["familyFreeGPUs"])
    assert samples(page, "jobtree_budget_headroom_gpus", *ENVELOPE) == owner
    assert samples(page, "jobtree_budget_family_headroom_gpus", *ENVELOPE) == family
    assert sum(owner.values()) > sum(family.values()), "an owner takes back what its family uses"


def test_gpu_hours_are_those_of_the_leases_until_now(manager: Manager, page: bytes) -> None:
    now = manager.server.now
    used: dict[Labels, float] = {}
    committed: dict[Labels, float] = {}
    for lease, labels, column, gpus in leases(manager.server):
        if column == "opportunistic":
            continue
        end, start = lease.get("status", {}).get("end"), parse_time(lease["spec"]["start"])
        hours = ((parse_time(end) if end else now) - start) / HOUR_MS
        used[labels] = used.get(labels, 0) + gpus * hours
        limit = {"spared": 10, "shared": 20}.get(lease["spec"]["runRef"]["name"])
        if limit and not end:
            committed[labels] = committed.get(labels, 0) + gpus * (limit - hours)
    series = samples(page, "jobtree_budget_gpu_hours", *ENVELOPE, "kind")
    assert {labels[:-1]: hours for labels, hours in nonzero(series).items() if labels[-1] == "used"} == used
    shown = {labels[:-1]: hours for labels, hours in nonzero(series).items() if labels[-1] == "committed"}
    org, child = ("org", "org", "main", H100), ("org:child", "org-child", "main", H100)
    committed[org] += 16 + 4  # promised to waits and to on-spares, each an hour without a maxDuration
    committed[child] += 8  # promised to unpaid
    assert shown == pytest.approx(committed)
    (status,) = (body["status"] for body in manager.server.all(BUDGETS) if body["metadata"]["name"] == "org")
    left = {labels: hours for labels, hours in series.items() if labels[-1] == "left"}
    assert left == {(*org, "left"): float(status["envelopes"][0]["leftGPUHours"])}


def test_each_gpu_of_the_fleet_is_in_one_state(manager: Manager, page: bytes) -> None:
    server = manager.server
    roles: dict[tuple[str, int], set[str]] = {}
    for lease, *_ in leases(server):
        if "end" not in lease.get("status", {}):
            for node, mask in parse_slots(lease["spec"]["slots"]).items():
                for slot in range(8):
                    if mask >> slot & 1:
                        roles.setdefault((node, slot), set()).add(lease["spec"]["role"].lower())
    expected: Counter[Labels] = Counter()
    for body in server.all(NODES):
        name, labels = body["metadata"]["name"], body["metadata"]["labels"]
        domain = "/".join(labels[label] for label in ("region", "cluster", "fabric.domain"))
        foreign = 3 if name == "nv-b-00" else 0
        for slot in range(8):
            held = roles.get((name, slot), set())
            state = "unavailable" if name == "nv-b-01" else "free"
            if held:
                state = min(held)  # opportunistic work on a spare's slot is that
            elif foreign:
                state, foreign = "foreign", foreign - 1
            expected[H100, domain, state] += 1
    series = samples(page, "jobtree_fleet_gpus", "flavor", "domain", "state")
    assert nonzero(series) == expected
    states = {"active", "spare", "opportunistic", "foreign", "free", "unavailable"}
    assert {state for *_, state in expected} == states
    assert sum(series.values()) == 72


def test_reservation_gauge_counts_pending_reservations(manager: Manager, page: bytes) -> None:
    server = manager.server
    starts = [
        body["spec"].get("earliestStart")
        for body in server.all(RESERVATIONS)
        if body["status"]["state"] == "Pending"
    ]
    dated = [(parse_time(start) - server.now) / 1000 for start in starts if start]
    assert len(dated) >= 1
    assert None in starts
    assert samples(page, "jobtree_reservations_pending", "flavor") == {(H100,): len(starts)}
    assert samples(page, "jobtree_reservations_undated", "flavor") == {(H100,): starts.count(None)}
    assert samples(page, "jobtree_reservations_backlog_seconds", "flavor") == {(H100,): max(dated)}
    buckets = samples(page, "jobtree_reservation_eta_seconds_bucket", "le")
    for (limit,), number in buckets.items():
        within = [eta for eta in dated if eta <= float(limit)]
        assert number == (len(starts) if limit == "+Inf" else len(within)), limit
    assert value(page, "jobtree_reservation_eta_seconds_count") == len(starts)
    assert value(page, "jobtree_reservation_eta_seconds_sum") == sum(dated)


def test_stages_that_start_together_count_as_one_reservation() -> None:
    server = Server()
    put_policy(server, TEMPLATE)
    put_nodes(server, "nv-a", 1)
    put_budget(server, "org", 16)
    stages = [
        {"name": "a", "resources": {"gpuType": H100, "totalGPUs": 8}},
        {"name": "b", "resources": {"gpuType": H100, "totalGPUs": 8}, "with": ["a"]},
    ]
    body = {"apiVersion": RUNS.api_version, "kind": "Run", "spec": {"owner": "org", "stages": stages}}
    server.create(RUNS.path("ns"), {**body, "metadata": {"name": "tree", "namespace": "ns"}})
    manager = Manager(server)
    manager.settle()
    assert [body["status"]["state"] for body in server.all(RESERVATIONS)] == ["Pending"]
    page = manager.metrics.page()
    assert samples(page, "jobtree_reservations_pending", "flavor") == {(H100,): 1}


def test_deleted_objects_leave_no_series() -> None:
    server = busy_cluster()
    manager = Manager(server)
    manager.settle()
    assert "lender" in manager.metrics.page().decode()
    server.delete(BUDGETS.path(name="lender"))
    for name in ("nv-b-00", "nv-b-01"):
        server.delete(f"/api/v1/nodes/{name}")
    server.delete(RUNS.path("ns", "borrows"))
    manager.settle()
    page = manager.metrics.page()
    budgets = {labels[1] for labels in samples(page, "jobtree_budget_headroom_gpus", *ENVELOPE)}
    assert budgets == {"org", "org-child"}
    domains = {labels[1] for labels in samples(page, "jobtree_fleet_gpus", "flavor", "domain", "state")}
    assert domains == {"r/c/nv-a"}


def test_each_page_has_present_figures() -> None:
    server = Server()
    put_policy(server, TEMPLATE)
    put_nodes(server, "nv-a", 2)
    put_budget(server, "org", 16)
    manager = Manager(server)
    manager.settle()
    seen = []
    for number in range(3):
        page = manager.metrics.page()
        seen.append(nonzero(samples(page, "jobtree_fleet_gpus", "flavor", "domain", "state")))
        put_run(server, f"r{number}", "org", 8)
        manager.settle()
    assert [{state: gpus for (*_, state), gpus in page.items()} for page in seen] == [
        {"free": 16},
        {"active": 8, "free": 8},
        {"active": 16},
    ]


def test_names_with_special_characters_are_escaped() -> None:
    hostile = 'a"b\\c\nd'
    assert world_gauges.labelled(("x", "y"), (hostile, "z")) == r'x="a\"b\\c\nd",y="z"'


def test_page_waits_for_the_plan_and_has_old_figures_when_it_takes_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = busy_cluster()
    manager = Manager(server)
    shown = WorldGauges(lambda: manager.model.world, lambda: server.now)
    first = shown.page()
    manager.settle()
    with shown.planning():
        monkeypatch.setattr(world_gauges, "WAIT_SECONDS", 0.0)
        assert shown.page() == first
        monkeypatch.setattr(world_gauges, "WAIT_SECONDS", 30.0)
        pages: list[str] = []
        reader = threading.Thread(target=lambda: pages.append(shown.page()))
        reader.start()
        assert pages == []
    reader.join(30)
    assert pages == [shown.page()] != [first]


def test_only_the_leader_has_gauges_of_the_world() -> None:
    manager = Manager(busy_cluster())
    manager.settle()
    for page in (Metrics().page(), manager.metrics.page(leads=False)):
        shown = page.decode()
        assert [metric.name for metric in METRICS if metric.of_world and metric.name in shown] == []
        assert value(page, "jobtree_leading") == 0
    assert value(manager.metrics.page(), "jobtree_leading") == 1


def test_counters_of_a_domain_are_removed_with_it() -> None:
    metrics = Metrics()
    for domain in ("r/c/a", "r/c/b"):
        metrics.add(PREEMPTIONS, 1, H100, domain, "Shrink")
        metrics.add(RESOLVER, 1, "Shrink", H100, domain)
    metrics.forget_domains({(H100, "r/c/b")})
    page = metrics.page()
    assert "r/c/a" not in page.decode()
    assert samples(page, PREEMPTIONS.name, *PREEMPTIONS.labels) == {(H100, "r/c/b", "Shrink"): 1}
    metrics.add(PREEMPTIONS, 1, H100, "r/c/a", "Shrink")
    assert samples(metrics.page(), PREEMPTIONS.name, *PREEMPTIONS.labels)[H100, "r/c/a", "Shrink"] == 1
