"""What the process says about itself is true."""

import asyncio

from aiohttp import ClientSession, web

from jobtree.core.check import Violation
from jobtree.kube.errors import StatusError
from jobtree.kube.follow import Follow
from jobtree.kube.resources import CONFIG_MAPS, NODES
from jobtree.kube.watch import Watch
from jobtree.manager.health import STALE_SECONDS, STUCK_SECONDS, Health
from jobtree.manager.metrics import Metrics
from jobtree.manager.view import View


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def seen_view() -> View:
    view = View("jobtree-system", lambda *_: None, lambda: None)
    for store, _ in view.by_resource().values():
        store.finish()
    return view


def watch(view: View, resource: object, clock: Clock) -> Watch:
    store, selector = next(found for kind, found in view.by_resource().items() if kind is resource)
    return Watch(None, Follow(resource, store, selector), clock=clock)  # type: ignore[arg-type]


def test_a_process_that_has_seen_everything_is_ready() -> None:
    assert Health(seen_view(), Metrics()).unreadiness() == []


def test_a_kind_that_was_not_listed_yet_is_named() -> None:
    view = View("jobtree-system", lambda *_: None, lambda: None)
    assert "nodes have not been seen yet" in Health(view, Metrics()).unreadiness()


def test_old_news_is_no_news() -> None:
    clock = Clock()
    health = Health(seen_view(), Metrics(), clock)
    health.watches = [watch(seen_view(), NODES, clock)]
    assert health.unreadiness() == []
    clock.now = STALE_SECONDS + 1
    assert health.unreadiness() == [f"nodes: silent for {STALE_SECONDS + 1:.0f} s"]


def test_trouble_with_a_needed_kind_is_told_and_with_the_policy_is_not() -> None:
    clock = Clock()
    health = Health(seen_view(), Metrics(), clock)
    health.watches = [watch(seen_view(), kind, clock) for kind in (NODES, CONFIG_MAPS)]
    for one in health.watches:
        one.trouble = StatusError(403, "Forbidden", "you may not")
    assert health.unreadiness() == ["nodes: you may not"]


def test_a_decision_that_could_not_be_written_makes_it_unready() -> None:
    health = Health(seen_view(), Metrics())
    health.trouble = "the last decision could not be written"
    assert health.unreadiness() == [health.trouble]


def test_a_loop_that_does_not_turn_is_dead() -> None:
    clock = Clock()
    health = Health(seen_view(), Metrics(), clock)
    clock.now = STUCK_SECONDS + 1
    assert health.illness() == [f"the loop has not turned for {STUCK_SECONDS + 1:.0f} s"]
    health.turned()
    assert health.illness() == []


def test_all_of_it_is_served() -> None:
    async def ask() -> list[tuple[int, str]]:
        metrics = Metrics()
        metrics.count(Violation("I6", "broken"))
        health = Health(View("ns", lambda *_: None, lambda: None), metrics)
        runner = await health.serve("127.0.0.1:0")
        (site,) = runner.sites
        assert isinstance(site, web.TCPSite)
        port = runner.addresses[0][1]
        try:
            async with ClientSession() as session:
                found = []
                for path in ("healthz", "readyz", "metrics"):
                    async with session.get(f"http://127.0.0.1:{port}/{path}") as answer:
                        found.append((answer.status, await answer.text()))
                return found
        finally:
            await runner.cleanup()

    alive, ready, metrics = asyncio.run(ask())
    assert alive == (200, "ok\n")
    assert (ready[0], "runs have not been seen yet" in ready[1]) == (503, True)
    assert 'jobtree_invariant_violations_total{invariant="I6"} 1.0' in metrics[1]
