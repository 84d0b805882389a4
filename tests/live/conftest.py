"""The control planes that the live tests share: started for the first of them, stopped after the last."""

import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.live import cluster
from tests.live.binaries import find_all
from tests.live.control_plane import ControlPlane
from tests.live.definitions import apply_definitions, await_definitions
from tests.live.eventful import Ground, Outcome
from tests.live.fleet import Fleet
from tests.live.guarding import Guarded, guarded_cluster
from tests.live.hardship import undisturbed_outcome
from tests.live.hooking import cluster_without_policies
from tests.live.managing import Scene
from tests.live.packages import why_no_prometheus, why_no_real_nodes
from tests.live.real_nodes import RealNodes
from tests.live.rest import Rest
from tests.live.stage import Stage

PROGRAMS = {
    "control_plane": ("etcd", "kube-apiserver", "kubectl"),
    "fleet": ("kube-controller-manager", "kube-scheduler", "kwok"),
    "made_cluster": cluster.PROGRAMS,
    "stage": cluster.PROGRAMS,
    "guarded": cluster.PROGRAMS,
    "watched": cluster.PROGRAMS,
    "ground": cluster.PROGRAMS,
    "real_nodes": (*cluster.PROGRAMS, *cluster.REAL_PROGRAMS),
}
"""What must be there for each of the fixtures."""


@pytest.fixture(scope="session", autouse=True)
def _hear_interrupts() -> None:
    """Started in the background of a shell, the tests and all that they start would not hear an interrupt."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def programs(request: pytest.FixtureRequest) -> dict[str, Path]:
    """All programs that the chosen tests need: found, or built, those of one module at once."""
    fixtures = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    if why_no_real_nodes():
        fixtures.discard("real_nodes")
    names = {name: None for fixture, needed in PROGRAMS.items() if fixture in fixtures for name in needed}
    with _shown(request.session):
        return find_all(list(names))


@pytest.fixture(scope="session")
def control_plane(programs: dict[str, Path]) -> Iterator[ControlPlane]:
    """A running etcd and API server, which all tests share: what a test makes, it names for itself."""
    assert "kube-apiserver" in programs
    with ControlPlane() as plane:
        yield plane


@pytest.fixture(scope="session")
def jobtree_cluster(control_plane: ControlPlane) -> ControlPlane:
    """The control plane, with the four kinds of Jobtree defined in it."""
    applied = apply_definitions(control_plane)
    assert applied.stderr == "", "the server warns of the definitions"
    await_definitions(control_plane)
    return control_plane


@pytest.fixture(scope="session")
def fleet(control_plane: ControlPlane) -> Fleet:
    """kwok, the controllers and the scheduler, for the control plane; the nodes are up to the tests."""
    control_plane.start_controllers()
    control_plane.start_scheduler()
    return control_plane.kwok()


@pytest.fixture(scope="session")
def guarded(request: pytest.FixtureRequest, programs: dict[str, Path]) -> Iterator[Guarded]:
    """A control plane of its own with a running manager and fake nodes, and the rules of who may do what.

    Admission policies hold them, or, where a module says so (``PATHS``), the webhook as on old clusters.
    """
    assert "kwok" in programs
    made = {"policies": guarded_cluster, "webhook": cluster_without_policies}[request.param]
    with made() as cluster_with_rules:
        yield cluster_with_rules


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "guarded" in metafunc.fixturenames:
        paths = getattr(metafunc.function, "paths", getattr(metafunc.module, "PATHS", ("policies",)))
        metafunc.parametrize("guarded", paths, indirect=True, scope="session")


@pytest.fixture
def attacked(guarded: Guarded) -> Scene:
    """A managed namespace with two nodes, the team of an attacker (``mine``) and another one (``theirs``)."""
    scene = guarded.scene()
    scene.nodes("nv-a", 2)
    scene.budget("mine", 16)
    scene.budget("theirs", 16)
    return scene


@pytest.fixture
def mallory(guarded: Guarded, attacked: Scene) -> Iterator[Rest]:
    """The attacker, to whom RBAC gives too much."""
    yield guarded.person(attacked, "mallory", "mine")
    assert not guarded.manager.has_ended, guarded.manager.log.read_text()


@pytest.fixture(scope="session")
def real_nodes(request: pytest.FixtureRequest) -> Iterator[RealNodes]:
    """Two real nodes on a control plane of their own, whose controllers soon notice when one is lost."""
    if why := why_no_real_nodes():
        pytest.skip(why)
    request.getfixturevalue("programs")
    with ControlPlane() as plane:
        plane.start_controllers(controllers="*", node_monitor_period="1s", node_monitor_grace_period="12s")
        with _shown(request.session):
            nodes = plane.real_nodes(2)
        yield nodes


@pytest.fixture(scope="session")
def stage(programs: dict[str, Path]) -> Iterator[Stage]:
    """A control plane of its own with the manager and fake nodes, for the tests of the command line."""
    assert "kwok" in programs
    with Stage() as made:
        yield made


@pytest.fixture(scope="session")
def ground(programs: dict[str, Path]) -> Iterator[Ground]:
    """A control plane of its own with fake nodes, for managers that are killed, paused and led astray."""
    assert "kwok" in programs
    with ControlPlane() as plane:
        yield Ground(plane)


@pytest.fixture(scope="session")
def undisturbed(ground: Ground) -> Outcome:
    """What an eventful hour comes to when nothing befalls the manager."""
    return undisturbed_outcome(ground)


@contextmanager
def _shown(session: pytest.Session) -> Iterator[None]:
    """Outside pytest's capture: what takes minutes the first time tells how it goes."""
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says loudly which tests did not run for want of root: the one thing that is ever skipped."""
    for what, why in (("on real nodes", why_no_real_nodes()), ("with Prometheus", why_no_prometheus())):
        skipped = [
            one.nodeid
            for one in terminalreporter.stats.get("skipped", ())
            if why and why in str(one.longrepr)
        ]
        if skipped:
            terminalreporter.section(f"NOT RUN: tests {what}", red=True, bold=True)
            terminalreporter.line(f"{len(skipped)} tests did not run, for {why}:", red=True)
            for test in skipped:
                terminalreporter.line(f"  {test}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the last lines of the servers' logs to the report of a test that failed."""
    report = yield
    fixtures = getattr(item, "funcargs", {})
    staged = fixtures.get("real_nodes") or fixtures.get("stage")
    plane = staged.plane if staged else fixtures.get("control_plane")
    if report.failed and plane is not None:
        report.sections.append(("logs of the control plane", plane.logs()))
    return report
