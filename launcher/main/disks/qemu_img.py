"""Disks of servers, opened by ``qemu-img`` as QEMU will open them: what it will say of one nobody else knows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from launcher.main.programs.children import Children, CommandFailed

QEMU_IMG: Final = "/usr/bin/qemu-img"
ENVIRONMENT: Final = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}


class CannotOpen(Exception):
    """A disk cannot be opened; the message is QEMU's own, on one line, without the command and the options, which QEMU repeats."""


async def info(children: Children, source: Mapping[str, Any], objects: Sequence[str], seconds: float) -> None:
    """Open a disk, and read how large it is.

    Args:
        children: who starts processes.
        source: the disk, in the words of QEMU's ``blockdev-add``.
        objects: what it refers to, as ``--object`` takes it.
        seconds: how long that may take.

    Raises:
        CannotOpen: it is refused.
        TimeoutError: it takes longer.
    """
    place = f"json:{json.dumps(source)}"
    try:
        async with asyncio.timeout(seconds):
            await children.run([QEMU_IMG, "info", *(part for each in objects for part in ("--object", each)), place], ENVIRONMENT)
    except CommandFailed as error:
        raise CannotOpen(" ".join(str(error).rpartition(f"{place}': ")[2].rpartition("qemu-img: ")[2].split())) from None
