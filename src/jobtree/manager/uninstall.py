"""``python -m jobtree.manager.uninstall``: stops the manager and removes finalizers, before an uninstall.

A Run that the manager started carries a finalizer, which the manager removes when the leases of the Run are
ended. Without a manager the Run could never be deleted. So the Deployment is scaled to zero, and this process
leads as soon as no manager does; from then on no manager can start a Run. Then it removes the finalizer from
every Run. Pods continue to run and leases stay open: a manager that is installed later ends the leases whose
Run is gone.

The command may be run again at any time, and does what is left to do.
"""

import asyncio
import sys
from collections.abc import Callable

import click

from jobtree.api.schema.problems import InputError
from jobtree.kube.auth.cluster_access import Access, find_access
from jobtree.kube.http import api_requests
from jobtree.kube.http.api_errors import NOT_FOUND, KubeError, StatusError
from jobtree.kube.http.api_requests import Preconditions, Request
from jobtree.kube.http.api_resources import DEPLOYMENTS, RUNS
from jobtree.kube.http.async_client import AsyncClient
from jobtree.kube.http.async_transport import PooledTransport
from jobtree.kube.http.transport import AsyncTransport
from jobtree.kube.installation import FINALIZER
from jobtree.kube.write.leader_election import ElectionChange, ElectionTarget, Leader, leader_client
from jobtree.kube.write.object_writer import Writer
from jobtree.kube.write.write_gate import Gate
from jobtree.manager.log import Log
from jobtree.manager.settings import ManagerSettings, read_settings

ELECTED_SECONDS = 120.0


def main() -> int:
    try:
        settings = read_settings(sys.argv[1:])
        asyncio.run(uninstall(settings, find_access(settings.context, settings.kubeconfig), Log()))
    except click.ClickException as wrong:
        wrong.show()
        return wrong.exit_code
    except (InputError, KubeError, TimeoutError) as wrong:
        click.echo(f"error: {wrong}", err=True)
        return 2
    return 0


async def uninstall(settings: ManagerSettings, access: Access, log: Log) -> None:
    transport = PooledTransport(access)
    try:
        await _stop_manager(transport, settings)
        log.say("uninstall", "the manager is told to stop")
        elected = asyncio.Event()
        leader = Leader(leader_client(access), _election_target(settings), _on_election_change(elected))
        leader.start()
        try:
            await _await_election(elected, leader)
            released = await release(transport, Writer(transport, Gate(leader.may_write)))
        finally:
            await asyncio.to_thread(leader.stop)
        log.say("uninstall", "every Run may be deleted now", released=released)
    finally:
        await transport.close()


async def release(transport: AsyncTransport, writer: Writer) -> int:
    """Removes the finalizer from every Run; returns the number of Runs that had it."""
    client = AsyncClient(transport)
    with_finalizer = [
        run["metadata"]
        for run in await client.list(RUNS)
        if FINALIZER in run["metadata"].get("finalizers", ())
    ]
    for metadata in with_finalizer:
        await _release_one(client, writer, metadata["name"], metadata["namespace"])
    return len(with_finalizer)


async def _release_one(client: AsyncClient, writer: Writer, name: str, namespace: str) -> None:
    async def decide() -> Request | None:
        try:
            metadata = (await client.ask(api_requests.get(RUNS, name, namespace)))["metadata"]
        except StatusError as refused:
            if refused.code == NOT_FOUND:
                return None
            raise
        rest = [name for name in metadata.get("finalizers", ()) if name != FINALIZER]
        preconditions = Preconditions(name, namespace, metadata["uid"], metadata["resourceVersion"])
        return api_requests.merge_patch(RUNS, preconditions, {"metadata": {"finalizers": rest}})

    try:
        await writer.rewrite(decide)
    except StatusError as refused:
        if refused.code != NOT_FOUND:
            raise


async def _stop_manager(transport: AsyncTransport, settings: ManagerSettings) -> None:
    """Scales the Deployment, which has the name of the election, to zero; there may be none."""
    preconditions = Preconditions(settings.election, settings.namespace)
    patch = api_requests.merge_patch(DEPLOYMENTS, preconditions, {"spec": {"replicas": 0}}, "scale")
    try:
        await Writer(transport, Gate()).write(patch)
    except StatusError as refused:
        if refused.code != NOT_FOUND:
            raise


async def _await_election(elected: asyncio.Event, leader: Leader) -> None:
    try:
        await asyncio.wait_for(elected.wait(), ELECTED_SECONDS)
    except TimeoutError:
        message = f"{leader.holder} still leads after {ELECTED_SECONDS:.0f} s: stop it, and run this again"
        raise TimeoutError(message) from None


def _election_target(settings: ManagerSettings) -> ElectionTarget:
    return ElectionTarget(settings.namespace, settings.election, settings.identity)


def _on_election_change(elected: asyncio.Event) -> Callable[[ElectionChange], None]:
    loop = asyncio.get_running_loop()

    def on_change(change: ElectionChange) -> None:
        if change == "elected":
            loop.call_soon_threadsafe(elected.set)

    return on_change


if __name__ == "__main__":
    sys.exit(main())
