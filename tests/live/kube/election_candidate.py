"""A candidate of a leader election that counts while it leads: ``election_candidate.py KUBECONFIG IDENTITY``.

It counts in a ConfigMap. It prints ``elected``; when it loses the lead it prints ``lost`` and ends with exit
code 3. On SIGTERM it ends as a manager does: it stops counting, releases the election Lease and ends with
exit code 0.
"""

import asyncio
import signal
import sys

from jobtree.kube.auth.cluster_access import find_access
from jobtree.kube.http import api_requests
from jobtree.kube.http.api_errors import FencedError
from jobtree.kube.http.api_requests import Preconditions
from jobtree.kube.http.api_resources import CONFIG_MAPS
from jobtree.kube.http.async_transport import PooledTransport
from jobtree.kube.write.leader_election import ElectionChange, ElectionTarget, Leader, Timing, leader_client
from jobtree.kube.write.object_writer import Writer
from jobtree.kube.write.write_gate import Gate

NAMESPACE = "default"
LEASE = "contested"
COUNTS = Preconditions("contested-counts", NAMESPACE)
TIMING = Timing(duration=8, renew_deadline=5.0, retry=1.0)
LOST = 3


async def main(kubeconfig: str, identity: str) -> int:
    loop, elected, stopping = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def report(change: ElectionChange) -> None:
        print(change, flush=True)  # noqa: T201  the test reads this output
        if change == "elected":
            loop.call_soon_threadsafe(elected.set)

    access = find_access(kubeconfig=kubeconfig)
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    leader = Leader(leader_client(access, TIMING), ElectionTarget(NAMESPACE, LEASE, identity), report, TIMING)
    leader.start()
    await elected.wait()
    transport = PooledTransport(access)
    try:
        await count(Writer(transport, Gate(leader.may_write)), identity, stopping)
    except FencedError:
        await asyncio.to_thread(leader.stop)
        return LOST
    finally:
        await transport.close()
    await asyncio.to_thread(leader.stop)
    return 0


async def count(writer: Writer, identity: str, stopping: asyncio.Event) -> None:
    number = 0
    while not stopping.is_set():
        number += 1
        await writer.write(api_requests.merge_patch(CONFIG_MAPS, COUNTS, {"data": {identity: str(number)}}))


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
