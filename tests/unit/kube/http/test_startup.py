"""The modules that the command line needs for a live cluster load fast."""

import subprocess
import sys

PARTS = (
    "auth.cluster_access http.api_errors http.api_requests http.api_resources http.blocking_client "
    "http.blocking_transport watch.blocking_watch watch.object_decoder watch.object_store "
    "write.leader_election"
)
PROBE = f"""
import sys
for part in {PARTS!r}.split():
    __import__(f"jobtree.kube.{{part}}")
print(*sys.modules)
"""


def test_blocking_modules_load_neither_aiohttp_nor_asyncio() -> None:
    process = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    assert (
        set(process.stdout.split()) & {"aiohttp", "asyncio", "yaml", "cryptography", "jobtree.core"} == set()
    )
