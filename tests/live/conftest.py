"""The fixtures that live tests share. A control plane starts with the first test that needs it."""

import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.live.admission.admission_cluster import AdmissionCluster, cluster_with_policies
from tests.live.admission.webhook_cluster import cluster_with_webhook
from tests.live.cli.user_cluster import UserCluster
from tests.live.cluster.control_plane import ControlPlane
from tests.live.cluster.rest_client import RestClient
from tests.live.crds.installed_crds import apply_crds, await_crds
from tests.live.faults.disturbed_workloads import undisturbed_outcome
from tests.live.faults.fault_cluster import FaultCluster
from tests.live.faults.outcome import Outcome
from tests.live.manager.tenant import Tenant
from tests.live.nodes.fake_fleet import FakeFleet
from tests.live.nodes.real_nodes import RealNodes
from tests.live.programs.build_recipes import CLUSTER_PROGRAMS, REAL_NODE_PROGRAMS
from tests.live.programs.debian_packages import why_no_prometheus, why_no_real_nodes
from tests.live.programs.program_finder import find_programs

PROGRAMS_OF_FIXTURES = {
    "control_plane": ("etcd", "kube-apiserver", "kubectl"),
    "fleet": ("kube-controller-manager", "kube-scheduler", "kwok"),
    "started_cluster": CLUSTER_PROGRAMS,
    "user_cluster": CLUSTER_PROGRAMS,
    "admission_cluster": CLUSTER_PROGRAMS,
    "scraped_cluster": CLUSTER_PROGRAMS,
    "fault_cluster": CLUSTER_PROGRAMS,
    "lone_cluster": CLUSTER_PROGRAMS,
    "real_nodes": (*CLUSTER_PROGRAMS, *REAL_NODE_PROGRAMS),
}
"""The programs that each fixture needs."""


@pytest.fixture(scope="session", autouse=True)
def _handle_interrupts() -> None:
    """Restores SIGINT: a shell lets background jobs ignore it, and the servers would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def programs(request: pytest.FixtureRequest) -> dict[str, Path]:
    """All programs that the selected tests need; missing ones are built, those of one module together."""
    fixtures = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    if why_no_real_nodes():
        fixtures.discard("real_nodes")
    names = {
        name: None
        for fixture, needed in PROGRAMS_OF_FIXTURES.items()
        if fixture in fixtures
        for name in needed
    }
    with _output_shown(request.session):
        return find_programs(list(names))


@pytest.fixture(scope="session")
def control_plane(programs: dict[str, Path]) -> Iterator[ControlPlane]:
    """A running etcd and API server that all tests share; tests give their objects names of their own."""
    assert "kube-apiserver" in programs
    with ControlPlane() as plane:
        yield plane


@pytest.fixture(scope="session")
def jobtree_cluster(control_plane: ControlPlane) -> ControlPlane:
    """The shared control plane with the CRDs."""
    applied = apply_crds(control_plane)
    assert applied.stderr == "", "the API server warns of the CRDs"
    await_crds(control_plane)
    return control_plane


@pytest.fixture(scope="session")
def fleet(control_plane: ControlPlane) -> FakeFleet:
    """The shared control plane's kwok, controllers and scheduler; tests add the nodes."""
    control_plane.start_controllers()
    control_plane.start_scheduler()
    return control_plane.start_fake_fleet()


@pytest.fixture(scope="session")
def admission_cluster(
    request: pytest.FixtureRequest, programs: dict[str, Path]
) -> Iterator[AdmissionCluster]:
    """A control plane of its own with a running manager, fake nodes and the admission rules.

    Admission policies enforce the rules, or the webhook where a module says so (``CHECKERS``).
    """
    assert "kwok" in programs
    clusters = {"policies": cluster_with_policies, "webhook": cluster_with_webhook}
    with clusters[request.param]() as cluster:
        yield cluster


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs tests of admission with each checker that their function or module names."""
    if "admission_cluster" in metafunc.fixturenames:
        module_checkers = getattr(metafunc.module, "CHECKERS", ("policies",))
        checkers = getattr(metafunc.function, "checkers", module_checkers)
        metafunc.parametrize("admission_cluster", checkers, indirect=True, scope="session")


@pytest.fixture
def tenant(admission_cluster: AdmissionCluster) -> Tenant:
    """A managed namespace with two nodes, the attacker's team (``mine``) and another team (``theirs``)."""
    tenant = admission_cluster.create_tenant()
    tenant.add_nodes("nv-a", 2)
    tenant.create_budget("mine", 16)
    tenant.create_budget("theirs", 16)
    return tenant


@pytest.fixture
def attacker(admission_cluster: AdmissionCluster, tenant: Tenant) -> Iterator[RestClient]:
    """Requests of a user of the tenant to whom RBAC gives too many rights."""
    yield admission_cluster.create_user(tenant, "attacker", "mine")
    assert not admission_cluster.manager.has_ended, admission_cluster.manager.log.read_text()


@pytest.fixture(scope="session")
def real_nodes(request: pytest.FixtureRequest) -> Iterator[RealNodes]:
    """Two real nodes on a control plane of their own, whose controllers notice a lost node soon."""
    if why := why_no_real_nodes():
        pytest.skip(why)
    request.getfixturevalue("programs")
    with ControlPlane() as plane:
        plane.start_controllers(controllers="*", node_monitor_period="1s", node_monitor_grace_period="12s")
        with _output_shown(request.session):
            nodes = plane.start_real_nodes(2)
        yield nodes


@pytest.fixture(scope="session")
def user_cluster(programs: dict[str, Path]) -> Iterator[UserCluster]:
    """A control plane of its own with the manager and fake nodes, for tests of ``kubectl runs``."""
    assert "kwok" in programs
    with UserCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def fault_cluster(programs: dict[str, Path]) -> Iterator[FaultCluster]:
    """A control plane of its own with fake nodes, for managers that are killed, paused and disturbed."""
    assert "kwok" in programs
    with ControlPlane() as plane:
        yield FaultCluster(plane)


@pytest.fixture(scope="session")
def expected_outcome(fault_cluster: FaultCluster) -> Outcome:
    """The outcome of the workload without a disturbance."""
    return undisturbed_outcome(fault_cluster)


@contextmanager
def _output_shown(session: pytest.Session) -> Iterator[None]:
    """Disables pytest's capture, so that the progress of a long set-up is visible."""
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Lists in red the tests that did not run because they need root; no others are ever skipped."""
    for description, why in (
        ("on real nodes", why_no_real_nodes()),
        ("with Prometheus", why_no_prometheus()),
    ):
        skipped = [
            report.nodeid
            for report in terminalreporter.stats.get("skipped", ())
            if why and why in str(report.longrepr)
        ]
        if skipped:
            terminalreporter.section(f"NOT RUN: tests {description}", red=True, bold=True)
            terminalreporter.line(f"{len(skipped)} tests did not run: {why}", red=True)
            for test in skipped:
                terminalreporter.line(f"  {test}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the last lines of the servers' logs to the report of a failed test."""
    report = yield
    fixtures = getattr(item, "funcargs", {})
    cluster = fixtures.get("real_nodes") or fixtures.get("user_cluster")
    plane = cluster.plane if cluster else fixtures.get("control_plane")
    if report.failed and plane is not None:
        report.sections.append(("logs of the control plane", plane.logs()))
    return report
