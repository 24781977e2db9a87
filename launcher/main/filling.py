"""The process of an attachment pod that fills its claim with an image, before a running guest gets it.

It serves ``messages.Import``, and ends when virt-handler disconnects during an import. As it is the container's first process, the importer
then ends as well. So no import continues without virt-handler.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from apiserver.apis.virt.places import layout
from launcher.main.decisions.refusal import RequestRefused
from launcher.main.decisions.times import TIMES, Times
from launcher.main.disks.import_plans import DIRECTORIES, Directories
from launcher.main.lifecycle.imports import COMMAND, Imports
from launcher.main.lifecycle.record import Record
from launcher.main.programs.children import Children
from launcher.main.serving.wire import VERSION, Server
from launcher.protocol import messages

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
PLACES: Final = Directories(Path(layout.ATTACHMENT_DIRECTORY).parent, DIRECTORIES.devices, DIRECTORIES.secrets, DIRECTORIES.authorities)
"""The disk of the request is named ``layout.ATTACHMENT_VOLUME``."""


class Filling:
    """An attachment pod's process: serves the launcher's protocol, and imports one image on request."""

    def __init__(self, directories: Directories = PLACES, command: Sequence[str] = COMMAND, times: Times = TIMES) -> None:
        """Take the parameters of ``Imports``."""
        self._children = Children()
        self._record = Record(qemu_log=Path, status_changed=self._status_changed)
        self._imports = Imports(self._children, self._record, directories=directories, command=command, times=times)
        self._server = Server(VERSION, lambda: self._record.known.status, self._handle)

    async def run(self, directory: Path = Path(layout.RUN_DIRECTORY)) -> int:
        """Serve until virt-handler disconnects during an import; return exit code 1."""
        with self._children.reaping():
            async with asyncio.TaskGroup() as group:
                parts = (
                    self._imports.run(),
                    self._server.run(directory / layout.LAUNCHER_SOCKET),
                    _listen(directory / layout.ATTACHMENT_SOCKET),
                )
                tasks = [group.create_task(part) for part in parts]
                await self._abandoned()
                for task in tasks:
                    task.cancel()
        logger.warning("virt-handler disconnected during the import, which ends with this pod")
        return 1

    def _status_changed(self) -> None:
        self._server.status_changed()

    async def _handle(self, request: messages.Action) -> None:
        if not isinstance(request, messages.Import):
            raise RequestRefused("Conflict", "this pod only imports an image")
        await self._imports.ask(request.machine)

    async def _abandoned(self) -> None:
        while True:
            await self._server.deserted()
            if any(each.phase != "Succeeded" for each in self._record.known.status.imports):
                return
            await asyncio.sleep(LOOK_SECONDS)


async def _listen(path: Path) -> None:
    server = await asyncio.start_unix_server(lambda _, writer: writer.close(), path)
    async with server:
        await asyncio.get_running_loop().create_future()
