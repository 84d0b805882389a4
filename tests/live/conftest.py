"""The control plane that the live tests share: started for the first of them, stopped after the last."""

from collections.abc import Generator, Iterator

import pytest

from tests.live.binaries import find_all
from tests.live.control_plane import ControlPlane
from tests.live.definitions import apply_definitions, await_definitions
from tests.live.fleet import Fleet

PROGRAMS = {
    "control_plane": ("etcd", "kube-apiserver", "kubectl"),
    "fleet": ("kube-controller-manager", "kube-scheduler", "kwok"),
}
"""What must be there for each of the fixtures."""


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """A running etcd and API server, which all tests share: what a test makes, it names for itself."""
    _find_programs(request.session)
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


def _find_programs(session: pytest.Session) -> None:
    """Finds the programs that the chosen tests need, those of one module at once.

    Outside pytest's capture, for a first build takes minutes and tells how it goes.
    """
    fixtures = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    names = [name for fixture, needed in PROGRAMS.items() if fixture in fixtures for name in needed]
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        find_all(names)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the last lines of the servers' logs to the report of a test that failed."""
    report = yield
    plane = getattr(item, "funcargs", {}).get("control_plane")
    if report.failed and plane is not None:
        report.sections.append(("logs of the control plane", plane.logs()))
    return report
