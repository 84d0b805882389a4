"""What the command line loads to talk to a cluster must load at once."""

import subprocess
import sys

PARTS = "access client decode errors leader plain_http requests resources store stream"
PROBE = f"""
import sys
for part in {PARTS!r}.split():
    __import__(f"jobtree.kube.{{part}}")
print(*sys.modules)
"""


def test_the_blocking_half_loads_neither_aiohttp_nor_asyncio() -> None:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) & {"aiohttp", "asyncio", "yaml", "cryptography", "jobtree.core"} == set()
