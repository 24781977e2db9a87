"""Runs programs in a pod's network namespace, given as a descriptor, because a path or pid could be reused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Final

COMMAND_SECONDS: Final = 20.0
_OUTPUT_BYTES: Final = 1 << 20


class CommandFailed(Exception):
    """A program in a pod's network namespace failed, did not start or took too long; the message says why, with its errors."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        """Exit status, negative for a signal; None without one."""


def inside(namespace: int, command: Sequence[str]) -> tuple[str, ...]:
    """Return the command line that runs ``command`` in the namespace. The child must inherit the descriptor."""
    return ("nsenter", f"--net=/proc/self/fd/{namespace}", "--", *command)


async def run(namespace: int, command: Sequence[str]) -> bytes:
    """Run ``command`` in the namespace, and return its standard output. Raises CommandFailed."""
    what = " ".join(command).partition("\n")[0]
    try:
        child = await asyncio.create_subprocess_exec(
            *inside(namespace, command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            pass_fds=(namespace,),
            limit=_OUTPUT_BYTES,
        )
    except OSError as error:
        raise CommandFailed(f"start {what}: {error}") from error
    try:
        async with asyncio.timeout(COMMAND_SECONDS):
            output, errors = await child.communicate()
    except TimeoutError as error:
        raise CommandFailed(f"{what} took longer than {COMMAND_SECONDS:.0f} s") from error
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode:
        raise CommandFailed(f"{what} failed ({child.returncode}): {errors.decode(errors='replace').strip()[-500:]}", child.returncode)
    return output


async def links(namespace: int) -> list[dict[str, Any]]:
    """Return the links in a namespace (a descriptor), as ``ip -json address show`` prints them. Raises CommandFailed."""
    found: list[dict[str, Any]] = json.loads(await run(namespace, ("ip", "-json", "address", "show")))
    return found
