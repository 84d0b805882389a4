"""The way from pods to an API server on the loopback: ``python door.py ADDRESS PORT PORT-INSIDE``.

Whatever comes in at ``ADDRESS:PORT`` goes on to ``127.0.0.1:PORT-INSIDE``, and back. It looks into nothing:
who is who is between the two, by TLS. Where the API server is away, whoever knocks is turned away at once.
"""

import asyncio
import sys
from contextlib import suppress

CHUNK_BYTES = 1 << 16


async def main(address: str, port: int, inside: int) -> None:
    async def knock(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            to_server, from_server = await _reach(inside)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pass(reader, from_server), _pass(to_server, writer))

    server = await asyncio.start_server(knock, address, port)
    await server.serve_forever()


async def _reach(inside: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", inside)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until one side has said all; the other is then told so."""
    with suppress(OSError):
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
    with suppress(OSError):
        writer.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
