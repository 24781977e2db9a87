"""Opens disks of servers with ``qemu-img`` as QEMU will, to detect QEMU's errors before the start."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from launcher.main.programs.children import Children, CommandFailed

QEMU_IMG: Final = "/usr/bin/qemu-img"
ENVIRONMENT: Final = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}


class CannotOpen(Exception):
    """QEMU cannot open a disk; the message is QEMU's on one line, without the command and options that it repeats."""


async def info(children: Children, source: Mapping[str, Any], objects: Sequence[str], seconds: float) -> None:
    """Check that QEMU can open a disk and read its size, or raise CannotOpen, or TimeoutError after ``seconds``.

    ``source`` has the options of QEMU's ``blockdev-add``, ``objects`` those that it refers to, as for ``--object``.
    """
    place = f"json:{json.dumps(source)}"
    try:
        async with asyncio.timeout(seconds):
            await children.run([QEMU_IMG, "info", *(part for each in objects for part in ("--object", each)), place], ENVIRONMENT)
    except CommandFailed as error:
        raise CannotOpen(" ".join(str(error).rpartition(f"{place}': ")[2].rpartition("qemu-img: ")[2].split())) from None
