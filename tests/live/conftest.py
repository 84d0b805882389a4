"""The control plane that the live tests share: started for the first of them, stopped after the last."""

from collections.abc import Generator, Iterator

import pytest

from tests.live.binaries import find
from tests.live.control_plane import ControlPlane
from tests.live.definitions import apply_definitions, await_definitions
from tests.live.recipes import RECIPES


@pytest.fixture(scope="session")
def control_plane(pytestconfig: pytest.Config) -> Iterator[ControlPlane]:
    """A running etcd and API server, which all tests share: what a test makes, it names for itself."""
    _find_programs(pytestconfig)
    with ControlPlane() as plane:
        yield plane


@pytest.fixture(scope="session")
def jobtree_cluster(control_plane: ControlPlane) -> ControlPlane:
    """The control plane, with the four kinds of Jobtree defined in it."""
    applied = apply_definitions(control_plane)
    assert applied.stderr == "", "the server warns of the definitions"
    await_definitions(control_plane)
    return control_plane


def _find_programs(config: pytest.Config) -> None:
    """Looks for the programs outside pytest's capture: a first build takes minutes and tells how it goes."""
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        for name in RECIPES:
            find(name)


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
