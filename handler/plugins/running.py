"""Runs an executable with limits on time and output, and kills all its processes afterwards.

When the first process of its process namespace ends, the kernel kills all others. Standard input is a file in memory: a pipe would raise an
error if the program ends before reading it.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Mapping, Sequence
from typing import Final

from apiserver.apis.meta import descriptors
from handler.plugins import protocol
from handler.plugins.answers import Output

APART: Final = ("unshare", "--pid", "--fork", "--kill-child=KILL", "--")
_CHUNK: Final = 16 << 10
_LAST_BYTES: Final = 4 << 10
"""Of standard error."""
_GONE_SECONDS: Final = 5.0
"""A process that waits for a dead device survives any signal."""


async def run(
    command: Sequence[str],
    document: bytes,
    environment: Mapping[str, str],
    *,
    seconds: float = protocol.SECONDS,
    max_data: int | None = None,
) -> Output:
    """Run ``command`` with ``document`` as its standard input, and return its output.

    ``max_data`` is RLIMIT_DATA in bytes; None: inherited. Raises TimeoutError after ``seconds``, or OSError if it could not be started.
    """
    with descriptors.in_memory(document) as stdin:
        child = await asyncio.create_subprocess_exec(
            *APART,
            *(("prlimit", f"--data={max_data}", "--") if max_data is not None else ()),
            *command,
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(environment),
            cwd="/",
            start_new_session=True,
        )
    assert child.stdout is not None  # noqa: S101 - a pipe was asked for
    assert child.stderr is not None  # noqa: S101 - as above
    stdout, stderr = _Pipe(child, child.stdout, protocol.MAX_OUTPUT), _Pipe(child, child.stderr, protocol.MAX_ERRORS, _LAST_BYTES)
    try:
        async with asyncio.timeout(seconds):
            await _ended(child, stdout, stderr)
    finally:
        if child.returncode is None:
            _kill(child)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GONE_SECONDS):
                    await _ended(child, stdout, stderr)
    status = child.returncode if child.returncode is not None else -signal.SIGKILL
    return Output(status, bytes(stdout.kept), stderr.kept.decode(errors="replace"), excess=stdout.excess or stderr.excess)


async def _ended(child: asyncio.subprocess.Process, *pipes: _Pipe) -> None:
    async with asyncio.TaskGroup() as reading:
        for pipe in pipes:
            reading.create_task(pipe.read())
        await child.wait()


class _Pipe:
    """A pipe from a program, which is killed if it writes too much."""

    def __init__(self, child: asyncio.subprocess.Process, pipe: asyncio.StreamReader, most: int, keep: int | None = None) -> None:
        self._child = child
        self._pipe = pipe
        self._left = most
        self._keep = most if keep is None else keep
        self.kept = bytearray()
        """The output's end."""
        self.excess = False

    async def read(self) -> None:
        while chunk := await self._pipe.read(_CHUNK):
            self._left -= len(chunk)
            self.kept = (self.kept + chunk)[-self._keep :]
            if self._left < 0 and not self.excess:
                self.excess = True
                _kill(self._child)


def _kill(child: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.kill()
