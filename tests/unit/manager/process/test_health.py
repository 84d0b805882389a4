"""What the process says about itself is true."""

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


def seen_view() -> ClusterView:
    view = ClusterView("jobtree-system", lambda *_: None, lambda: None)
    for store, _ in view.by_resource().values():
        store.finish()
    return view


def watch(view: ClusterView, resource: object, clock: Clock) -> Reflector:
    store, selector = next(found for kind, found in view.by_resource().items() if kind is resource)
    return Reflector(None, WatchProtocol(resource, store, selector), clock=clock)  # type: ignore[arg-type]


def test_a_process_that_has_seen_everything_is_ready() -> None:
    assert Health(seen_view(), Metrics()).readiness_problems() == []


def test_a_kind_that_was_not_listed_yet_is_named() -> None:
    view = ClusterView("jobtree-system", lambda *_: None, lambda: None)
    assert "nodes have not been seen yet" in Health(view, Metrics()).readiness_problems()


def test_old_news_is_no_news() -> None:
    clock = Clock()
    health = Health(seen_view(), Metrics(), clock)
    health.watches = [watch(seen_view(), NODES, clock)]
    assert health.readiness_problems() == []
    clock.now = STALE_SECONDS + 1
    assert health.readiness_problems() == [f"nodes: silent for {STALE_SECONDS + 1:.0f} s"]


def test_trouble_with_a_needed_kind_is_told_and_with_the_policy_is_not() -> None:
    clock = Clock()
    health = Health(seen_view(), Metrics(), clock)
    health.watches = [watch(seen_view(), kind, clock) for kind in (NODES, CONFIG_MAPS)]
    for one in health.watches:
        one.trouble = StatusError(403, "Forbidden", "you may not")
    assert health.readiness_problems() == ["nodes: you may not"]


def policy(text: str, version: str) -> bytes:
    """A ConfigMap with that policy."""
    metadata = {"uid": "p", "name": "jobtree-policy", "namespace": "ns", "resourceVersion": version}
    return msgspec.json.encode({"metadata": metadata, "data": {"policy.yaml": text}})


def test_a_policy_that_was_never_readable_makes_it_unready_and_the_one_before_holds_on() -> None:
    view = seen_view()
    health = Health(view, Metrics())
    view.policy.upsert(policy("maxNotice: soon\n", "1"))
    (told,) = health.readiness_problems()
    assert told.startswith(NO_POLICY)
    assert "maxNotice" in told
    ((_, page),) = asyncio.run(served(health, "metrics"))
    assert 'jobtree_unreadable{resource="configmaps"} 1.0' in page
    assert 'jobtree_unreadable{resource="runs"} 0.0' in page
    view.policy.upsert(policy("maxNotice: 20m\n", "2"))
    assert health.readiness_problems() == []
    view.policy.upsert(policy("maxNotice: soon\n", "3"))
    assert health.readiness_problems() == []
    ((_, page),) = asyncio.run(served(health, "metrics"))
    assert 'jobtree_unreadable{resource="configmaps"} 1.0' in page


def test_a_decision_that_could_not_be_written_makes_it_unready() -> None:
    health = Health(seen_view(), Metrics())
    health.trouble = "the last decision could not be written"
    assert health.readiness_problems() == [health.trouble]


def test_a_loop_that_does_not_turn_is_dead() -> None:
    clock = Clock()
    health = Health(seen_view(), Metrics(), clock)
    clock.now = STUCK_SECONDS + 1
    assert health.liveness_problems() == [f"the loop has not turned for {STUCK_SECONDS + 1:.0f} s"]
    health.record_turn()
    assert health.liveness_problems() == []


async def served(health: Health, *paths: str) -> list[tuple[int, str]]:
    """What a probe or a scraper gets."""
    runner = await health.serve("127.0.0.1:0")
    port = runner.addresses[0][1]
    try:
        async with ClientSession() as session:
            found = []
            for path in paths:
                async with session.get(f"http://127.0.0.1:{port}/{path}") as answer:
                    found.append((answer.status, await answer.text()))
            return found
    finally:
        await runner.cleanup()


def test_all_of_it_is_served() -> None:
    metrics = Metrics()
    metrics.count(Violation("I6", "broken"))
    health = Health(ClusterView("ns", lambda *_: None, lambda: None), metrics)
    alive, ready, page = asyncio.run(served(health, "healthz", "readyz", "metrics"))
    assert alive == (200, "ok\n")
    assert (ready[0], "runs have not been seen yet" in ready[1]) == (503, True)
    assert 'jobtree_invariant_violations_total{invariant="I6"} 1.0' in page[1]


def test_a_watch_that_went_silent_is_told_to_probes_and_scrapers_and_kills_nobody() -> None:
    clock = Clock()
    health = Health(seen_view(), Metrics(), clock)
    health.watches = [watch(seen_view(), kind, clock) for kind in (NODES, CONFIG_MAPS)]
    clock.now = STALE_SECONDS - 1
    health.record_turn()
    assert asyncio.run(served(health, "readyz")) == [(200, "ok\n")]
    clock.now = STALE_SECONDS + 1
    health.record_turn()
    alive, ready, page = asyncio.run(served(health, "healthz", "readyz", "metrics"))
    assert alive == (200, "ok\n")
    assert ready == (503, f"nodes: silent for {STALE_SECONDS + 1:.0f} s\n")
    assert f'jobtree_watch_silent_seconds{{resource="nodes"}} {STALE_SECONDS + 1}' in page[1]


def test_a_scrape_does_not_hold_up_the_event_loop() -> None:
    """Whoever reads the world may have to wait for a plan: probes are answered meanwhile."""

    async def probe_during_scrape() -> list[tuple[int, str]]:
        metrics, planned = Metrics(), threading.Event()
        metrics.of_world = lambda: "" if planned.wait(30) else "the loop stood still\n"
        health = Health(seen_view(), metrics)
        health.leads = lambda: True
        scrape = asyncio.ensure_future(served(health, "metrics"))
        (probe,) = await served(health, "healthz")
        planned.set()
        return [probe, *(await scrape)]

    probe, scrape = asyncio.run(probe_during_scrape())
    assert probe == (200, "ok\n")
    assert "the loop stood still" not in scrape[1]
