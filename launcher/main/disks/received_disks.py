"""Takes made disks from a migration's source, in place of those that were made here."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from apiserver.apis.virt.places import layout
from launcher.main.disks import made_disks
from launcher.protocol.made_disks import MAX_LINE_BYTES, OK, MadeDisk, decode, refusal, unsuitable
from launcher.protocol.reading import ProtocolError

logger = logging.getLogger(__name__)

RECEIVE_SECONDS: Final = 60.0


class _Refused(Exception):
    """A disk is not taken, nor those after it; the message says why."""


class ReceivedDisks:
    """Takes the source's made disks while the migrating domain is awaited, one connection at a time."""

    def __init__(self, names: Sequence[str], is_awaited: Callable[[], bool]) -> None:
        self._names = names
        self._is_awaited = is_awaited
        self._turn = asyncio.Lock()

    async def listen(self) -> asyncio.Server:
        """Begin to take the made disks of a migration's source; return the server, which the caller closes. Raises OSError."""
        path = Path(layout.RUN_DIRECTORY, layout.MIGRATION_MADE_DISKS_SOCKET)
        await asyncio.to_thread(path.unlink, missing_ok=True)
        return await asyncio.start_unix_server(self._serve, path, limit=MAX_LINE_BYTES)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(RECEIVE_SECONDS), self._turn:
                answer = await self._answer(reader)
                logger.info("received the made disks from the source", extra={"answer": answer.decode().strip()})
                writer.write(answer)
                await writer.drain()
        except (OSError, TimeoutError, EOFError) as error:  # asyncio.IncompleteReadError is an EOFError
            logger.warning("cannot receive the made disks from the source", extra={"error": str(error) or type(error).__name__})
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        try:
            await self._take(reader)
        except (_Refused, ProtocolError) as error:
            return refusal(str(error))
        return OK

    async def _take(self, reader: asyncio.StreamReader) -> None:
        try:
            offer = decode(await reader.readuntil())
        except asyncio.LimitOverrunError as error:
            raise _Refused("the offer of disks is too long") from error
        if why := unsuitable(offer, self._names):
            raise _Refused(why)
        for disk in offer.disks:
            await self._store(disk, await reader.readexactly(disk.size))

    async def _store(self, disk: MadeDisk, content: bytes) -> None:
        if hashlib.sha256(content).hexdigest() != disk.sha256:
            raise _Refused(f"disk {disk.name!r} was damaged on its way")
        if not self._is_awaited():
            raise _Refused("this pod no longer expects the guest")
        try:
            await asyncio.to_thread(made_disks.replace, disk.name, content)
        except OSError as error:
            raise _Refused(f"disk {disk.name!r} cannot be written: {error.strerror}") from error
