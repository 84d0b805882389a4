"""``watch`` on a live cluster: it prints changes, and its exit code says how the Run ended."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from threading import Thread

import pytest

from tests.live.cli.kubectl_user import KubectlUser
from tests.live.cli.user_cluster import UserCluster
from tests.live.cluster.api_server_restart import restart_api_server
from tests.live.cluster.server_process import wait_until
from tests.live.manager.tenant import Tenant

LINE_SECONDS = 120


@pytest.fixture
def tenant(user_cluster: UserCluster) -> Tenant:
    return create_started_tenant(user_cluster)


def create_started_tenant(user_cluster: UserCluster) -> Tenant:
    tenant = user_cluster.create_tenant()
    tenant.add_nodes("nv", 2)
    tenant.create_budget("lab", 16)
    tenant.create_run("train", "lab", 16)
    tenant.await_running_pods("train", 2)
    return tenant


@pytest.fixture
def planner(user_cluster: UserCluster, tenant: Tenant, tmp_path: Path) -> KubectlUser:
    return user_cluster.planner(tenant, tmp_path)


class RunningWatch:
    """A running ``watch``, and the lines that it has printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: Queue[str] = Queue()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def await_line(self, text: str) -> str:
        """Returns the next line that contains this text."""
        lines: list[str] = []
        while not lines or text not in lines[-1]:
            try:
                lines.append(self._lines.get(timeout=LINE_SECONDS))
            except Empty:
                raise AssertionError(f"no line contains {text}: {lines}") from None
        return lines[-1]

    def remaining_lines(self) -> list[str]:
        """Returns the remaining lines of a watch that has ended."""
        self._reader.join(LINE_SECONDS)
        return [self._lines.get() for _ in range(self._lines.qsize())]

    def wait_for_exit(self) -> int:
        return self.process.wait(LINE_SECONDS)


@contextmanager
def watching(user: KubectlUser, *arguments: str) -> Iterator[RunningWatch]:
    with user.start_plugin("watch", *arguments) as process:
        try:
            yield RunningWatch(process)
        finally:
            process.kill()


def test_watch_prints_changes_and_ends_when_the_run_completes(tenant: Tenant, planner: KubectlUser) -> None:
    with watching(planner, "train") as watch:
        assert f"{tenant.name}/train  Running  16/16 GPUs  Owned 16" in watch.await_line("train")
        tenant.finish("train")
        watch.await_line("Completed")
        assert watch.wait_for_exit() == 0


def test_watch_fails_when_the_run_is_cancelled(tenant: Tenant, planner: KubectlUser) -> None:
    with watching(planner, "train") as watch:
        watch.await_line("Running")
        tenant.cancel("train")
        watch.await_line("is gone: it was cancelled")
        assert watch.wait_for_exit() == 1


def test_watch_ends_on_an_interrupt(planner: KubectlUser) -> None:
    with watching(planner, "train", "-o", "name") as watch:
        watch.await_line("run.rq.davidlangworthy.io/train")
        watch.process.send_signal(signal.SIGINT)
        assert watch.wait_for_exit() == 130
        assert watch.remaining_lines() == []


def test_watch_continues_after_a_restart_of_the_api_server(tmp_path: Path) -> None:
    """Uses a control plane of its own, because it restarts the API server."""
    with UserCluster() as user_cluster:
        tenant = create_started_tenant(user_cluster)
        with watching(user_cluster.planner(tenant, tmp_path), "train") as watch:
            watch.await_line("Running")
            restart_api_server(user_cluster.plane)
            tenant.cancel("train")
            wait_until(
                lambda: delete_without_finalizer(tenant, "train"),
                "the Run is deleted, with or without a manager",
            )
            watch.await_line("is gone: it was cancelled")
            assert watch.wait_for_exit() == 1


def delete_without_finalizer(tenant: Tenant, run: str) -> bool:
    tenant.plane.rest.merge(tenant.run_path(run), {"metadata": {"finalizers": None}})
    return not tenant.plane.rest.get(tenant.run_path(run)).accepted


def test_watch_once_prints_one_line(planner: KubectlUser) -> None:
    result = planner.kubectl_runs("watch", "train", "--once")
    assert (result.code, result.out.count("\n")) == (0, 1)
    result = planner.kubectl_runs("watch", "nobody")
    assert (result.code, "there is no Run nobody" in result.err) == (3, True), result.err
