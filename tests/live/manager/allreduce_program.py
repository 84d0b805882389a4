"""The program of the ranks of a real gang: they connect to MASTER_ADDR and add numbers together.

It runs in containers that contain only Python. Rank 0 listens. In every step each rank sends its number and
receives the sum. Rank 0 writes a checkpoint after every step, and a new attempt continues from it. A rank
that loses its connection waits to be ended, like a job that hangs in a collective operation.
"""

import json
import os
import socket
import time
from pathlib import Path

CHECKPOINT = Path(os.environ["CHECKPOINT"])
STEPS = int(os.environ["STEPS"])
RANK, RANKS = int(os.environ["NODE_RANK"]), int(os.environ["NNODES"])
MASTER = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
PAUSE_SECONDS = 0.2


def connect() -> list[socket.socket]:
    """Returns the connections of this rank: to every other rank on rank 0, else to rank 0."""
    if RANK == 0:
        server = socket.create_server(("", MASTER[1]))
        return [server.accept()[0] for _ in range(RANKS - 1)]
    while True:
        try:
            return [socket.create_connection(MASTER, timeout=5)]
        except OSError:  # rank 0 does not listen yet, or its name does not resolve yet
            time.sleep(PAUSE_SECONDS)


def receive(peer: socket.socket) -> int:
    text = b""
    while not text.endswith(b"\n"):
        part = peer.recv(64)
        if not part:
            raise ConnectionError
        text += part
    return int(text)


def all_reduce(peers: list[socket.socket], number: int) -> int:
    if RANK:
        peers[0].sendall(b"%d\n" % number)
        return receive(peers[0])
    total = number + sum(receive(peer) for peer in peers)
    for peer in peers:
        peer.sendall(b"%d\n" % total)
    return total


def main() -> None:
    text = CHECKPOINT.read_text() if CHECKPOINT.exists() else '{"step": 0, "sum": 0, "resumed": []}'
    saved = json.loads(text)
    if saved["step"]:
        saved["resumed"].append([os.environ["JOBTREE_ATTEMPT"], saved["step"]])
    peers = connect()
    for peer in peers:
        peer.settimeout(None)
    print("connected", RANK, "of", RANKS, "on", socket.gethostname(), flush=True)  # noqa: T201
    for step in range(saved["step"], STEPS):
        saved["sum"] += all_reduce(peers, RANK + 1)
        saved["step"] = step + 1
        if RANK == 0:
            new = CHECKPOINT.with_suffix(".new")
            new.write_text(json.dumps(saved))
            new.replace(CHECKPOINT)
        time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    try:
        main()
    except OSError:
        time.sleep(3600)
