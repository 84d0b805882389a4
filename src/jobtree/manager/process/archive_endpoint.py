"""Serves the archive over HTTP, for reading: ``/archive/`` lists its files, ``/archive/NAME`` is one of them.

The command line reaches it through the API server, which checks the right to read. Each manager has a volume
of its own, and only that of the leader is complete. So only the leader answers; the others return 503.
"""

import asyncio
from collections.abc import Callable

from aiohttp import web

from jobtree.archive.archive_directory import ArchiveDirectory, ArchiveError
from jobtree.archive.day_file import day_of
from jobtree.kube.installation import ARCHIVE_ELSEWHERE, ARCHIVE_PATH

STANDBY = f"{ARCHIVE_ELSEWHERE}: ask again\n"


class ArchivePages:
    def __init__(self, archive: ArchiveDirectory, leads: Callable[[], bool]) -> None:
        self._archive = archive
        self._leads = leads

    def add_to(self, app: web.Application) -> None:
        app.router.add_get(f"/{ARCHIVE_PATH}/", self._names)
        app.router.add_get(f"/{ARCHIVE_PATH}/{{name}}", self._file)

    async def _names(self, _: web.Request) -> web.Response:
        if not self._leads():
            return web.Response(status=503, text=STANDBY)
        try:
            return web.json_response(await asyncio.to_thread(self._archive.names))
        except ArchiveError as broken:
            return web.Response(status=500, text=f"{broken}\n")

    async def _file(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if not self._leads():
            return web.Response(status=503, text=STANDBY)
        if day_of(name) is None:
            return web.Response(status=404, text=f"{name} is no file of the archive\n")
        try:
            data = await asyncio.to_thread(self._archive.fetch, name)
        except ArchiveError as broken:
            return web.Response(status=404, text=f"{broken}\n")
        return web.Response(body=data, content_type="application/gzip")
