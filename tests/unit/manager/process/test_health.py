"""Liveness and readiness of the process, and the pages that it serves."""

import asyncio
import threading

import msgspec
from aiohttp import ClientSession

from jobtree.core.reporting.invariants import Violation
from jobtree.kube.http.api_errors import StatusError
from jobtree.kube.http.api_resources import CONFIG_MAPS, NODES
from jobtree.kube.watch.reflector import Reflector
from jobtree.kube.watch.watch_protocol import WatchProtocol
from jobtree.manager.cluster_view import ClusterView
from jobtree.manager.metrics import Metrics
from jobtree.manager.process.health import NO_POLICY, STALE_SECONDS, STUCK_SECONDS, Health


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def listed_view() -> ClusterView:
    view = ClusterView("jobtree-system", lambda *_: None, lambda: None)
    for store, _ in view.by_resource().values():
        store.finish()
    return view


def watch(view: ClusterView, resource: object, clock: Clock) -> Reflector:
    store, selector = next(stores for kind, stores in view.by_resource().items() if kind is resource)
    return Reflector(None, WatchProtocol(resource, store, selector), clock=clock)  # type: ignore[arg-type]


def test_process_is_ready_when_all_kinds_are_listed() -> None:
    assert Health(listed_view(), Metrics()).readiness_problems() == []


def test_unlisted_kind_is_named() -> None:
    view = ClusterView("jobtree-system", lambda *_: None, lambda: None)
    assert "nodes have not been seen yet" in Health(view, Metrics()).readiness_problems()


def test_process_is_not_ready_when_a_watch_is_silent_for_long() -> None:
    clock = Clock()
    health = Health(listed_view(), Metrics(), clock)
    health.watches = [watch(listed_view(), NODES, clock)]
    assert health.readiness_problems() == []
    clock.now = STALE_SECONDS + 1
    assert health.readiness_problems() == [f"nodes: silent for {STALE_SECONDS + 1:.0f} s"]


def test_error_of_a_needed_kind_is_reported_but_not_of_the_policy() -> None:
    clock = Clock()
    health = Health(listed_view(), Metrics(), clock)
    health.watches = [watch(listed_view(), kind, clock) for kind in (NODES, CONFIG_MAPS)]
    for reflector in health.watches:
        reflector.error = StatusError(403, "Forbidden", "you may not")
    assert health.readiness_problems() == ["nodes: you may not"]


def policy(text: str, version: str) -> bytes:
    """Returns a ConfigMap with that policy, encoded."""
    metadata = {"uid": "p", "name": "jobtree-policy", "namespace": "ns", "resourceVersion": version}
    return msgspec.json.encode({"metadata": metadata, "data": {"policy.yaml": text}})


def test_process_is_not_ready_until_a_policy_was_readable() -> None:
    view = listed_view()
    health = Health(view, Metrics())
    view.policy.upsert(policy("maxNotice: soon\n", "1"))
    (problem,) = health.readiness_problems()
    assert problem.startswith(NO_POLICY)
    assert "maxNotice" in problem
    ((_, page),) = asyncio.run(served(health, "metrics"))
    assert 'jobtree_unreadable{resource="configmaps"} 1.0' in page
    assert 'jobtree_unreadable{resource="runs"} 0.0' in page
    view.policy.upsert(policy("maxNotice: 20m\n", "2"))
    assert health.readiness_problems() == []
    view.policy.upsert(policy("maxNotice: soon\n", "3"))
    assert health.readiness_problems() == []
    ((_, page),) = asyncio.run(served(health, "metrics"))
    assert 'jobtree_unreadable{resource="configmaps"} 1.0' in page


def test_process_is_not_ready_when_a_decision_could_not_be_written() -> None:
    health = Health(listed_view(), Metrics())
    health.trouble = "the last decision could not be written"
    assert health.readiness_problems() == [health.trouble]


def test_process_is_not_alive_when_the_loop_makes_no_turns() -> None:
    clock = Clock()
    health = Health(listed_view(), Metrics(), clock)
    clock.now = STUCK_SECONDS + 1
    assert health.liveness_problems() == [f"the loop has not turned for {STUCK_SECONDS + 1:.0f} s"]
    health.record_turn()
    assert health.liveness_problems() == []


async def served(health: Health, *paths: str) -> list[tuple[int, str]]:
    """Returns the status and text of each path, as a probe or a scraper gets them."""
    runner = await health.serve("127.0.0.1:0")
    port = runner.addresses[0][1]
    try:
        async with ClientSession() as session:
            responses = []
            for path in paths:
                async with session.get(f"http://127.0.0.1:{port}/{path}") as answer:
                    responses.append((answer.status, await answer.text()))
            return responses
    finally:
        await runner.cleanup()


def test_probes_metrics_and_archive_are_served() -> None:
    metrics = Metrics()
    metrics.count(Violation("I6", "broken"))
    health = Health(ClusterView("ns", lambda *_: None, lambda: None), metrics)
    alive, ready, page = asyncio.run(served(health, "healthz", "readyz", "metrics"))
    assert alive == (200, "ok\n")
    assert (ready[0], "runs have not been seen yet" in ready[1]) == (503, True)
    assert 'jobtree_invariant_violations_total{invariant="I6"} 1.0' in page[1]


def test_silent_watch_is_shown_to_probes_and_scrapers_and_liveness_stays() -> None:
    clock = Clock()
    health = Health(listed_view(), Metrics(), clock)
    health.watches = [watch(listed_view(), kind, clock) for kind in (NODES, CONFIG_MAPS)]
    clock.now = STALE_SECONDS - 1
    health.record_turn()
    assert asyncio.run(served(health, "readyz")) == [(200, "ok\n")]
    clock.now = STALE_SECONDS + 1
    health.record_turn()
    alive, ready, page = asyncio.run(served(health, "healthz", "readyz", "metrics"))
    assert alive == (200, "ok\n")
    assert ready == (503, f"nodes: silent for {STALE_SECONDS + 1:.0f} s\n")
    assert f'jobtree_watch_silent_seconds{{resource="nodes"}} {STALE_SECONDS + 1}' in page[1]


def test_scrape_does_not_block_the_event_loop() -> None:
    """A scrape may have to wait for a plan; probes are answered meanwhile."""

    async def probe_during_scrape() -> list[tuple[int, str]]:
        metrics, planned = Metrics(), threading.Event()
        metrics.of_world = lambda: "" if planned.wait(30) else "the loop stood still\n"
        health = Health(listed_view(), metrics)
        health.leads = lambda: True
        scrape = asyncio.ensure_future(served(health, "metrics"))
        (probe,) = await served(health, "healthz")
        planned.set()
        return [probe, *(await scrape)]

    probe, scrape = asyncio.run(probe_during_scrape())
    assert probe == (200, "ok\n")
    assert "the loop stood still" not in scrape[1]
