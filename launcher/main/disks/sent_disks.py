"""Sends made disks to a migration's target, so the guest finds the same bytes there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

from apiserver.apis.virt.places import layout
from launcher.hypervisor.port import MigrationFailed
from launcher.main.disks import made_disks
from launcher.protocol.made_disks import MAX_ANSWER_BYTES, UNSENT, encode, offer_of, reason


class NotSent(MigrationFailed):
    """The target did not confirm the disks. The domain stayed, because libvirt did not begin."""


async def send(names: Sequence[str]) -> None:
    """Send these made disks to a migration's target and wait until it has them, or raise NotSent."""
    try:
        contents = [await asyncio.to_thread(made_disks.read, each) for each in names]
    except OSError as error:
        raise NotSent(f"a disk that was made in the pod cannot be read: {error}") from error
    why = reason(await _answer(encode(offer_of(names, contents)), contents))
    if why is None:
        raise NotSent(
            f"{UNSENT}: the connection broke, because virt-handler of one of the nodes was restarted or the target's pod ended; or "
            "virt-handler of the target is of a version that takes no such disks"
        )
    if why:
        raise NotSent(f"the target refuses the disks that were made in the guest's pod: {why}")


async def _answer(line: bytes, contents: Sequence[bytes]) -> bytes:
    path = Path(layout.RUN_DIRECTORY, layout.MIGRATION_MADE_DISKS_SOCKET)
    try:
        reader, writer = await asyncio.open_unix_connection(path, limit=MAX_ANSWER_BYTES)
    except OSError:
        return b""
    try:
        with contextlib.suppress(OSError):  # a target that refuses stops reading, but may have answered
            for each in (line, *contents):
                writer.write(each)
                await writer.drain()
        with contextlib.suppress(OSError, ValueError):  # ValueError: the line is too long
            return await reader.readline()
        return b""
    finally:
        writer.transport.abort()
