"""Forwards TCP connections to a loopback port: ``python port_forwarder.py ADDRESS PORT LOOPBACK-PORT``.

Pods reach the API server this way. Connections to ``ADDRESS:PORT`` are forwarded to
``127.0.0.1:LOOPBACK-PORT``; TLS stays between client and server. If nothing listens on the loopback port, a
connection is closed at once.
"""

import asyncio
import sys
from contextlib import suppress

CHUNK_BYTES = 1 << 16


async def main(address: str, port: int, loopback_port: int) -> None:
    async def forward(client_reader: asyncio.StreamReader, client_writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", loopback_port)
        except OSError:
            client_writer.close()
            return
        await asyncio.gather(_copy(client_reader, server_writer), _copy(server_reader, client_writer))

    server = await asyncio.start_server(forward, address, port)
    await server.serve_forever()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copies bytes until the reader ends, then closes the writer."""
    with suppress(OSError):
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
    with suppress(OSError):
        writer.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
