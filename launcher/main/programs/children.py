"""Child processes of pid 1: our own, and orphans such as QEMU, which libvirtd starts as a daemon."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from apiserver.apis.meta import descriptors

logger = logging.getLogger(__name__)

MAX_OUTPUT: Final = 4096
RUN_SECONDS: Final = 60.0


class CommandFailed(Exception):
    """A command failed; the message ends with its output, if it was read."""


class Children:
    """Starts processes and reaps every child.

    asyncio's child watcher would leave orphans as zombies. No other code in this process may wait for children.
    """

    def __init__(self, run_seconds: float = RUN_SECONDS) -> None:
        self._run_seconds = run_seconds
        self._waiting: dict[int, asyncio.Future[int]] = {}

    @contextlib.contextmanager
    def reaping(self) -> Iterator[None]:
        """Reap all child processes that end inside the context."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGCHLD)

    def start(
        self, arguments: Sequence[str], environment: Mapping[str, str], *, output: int | None = None, given: int | None = None
    ) -> tuple[int, asyncio.Future[int]]:
        """Start a process in its own session. Raises OSError.

        ``given`` is the descriptor of its input (None: empty); ``output`` is that of its output and its errors (None: ours).

        Returns:
            Its pid, and a future with its exit code (negative: the signal that ended it), which needs :meth:`reaping`.
        """
        actions = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)]
        if given is not None:
            actions = [(os.POSIX_SPAWN_DUP2, given, 0)]  # type: ignore[list-item]  # tuples of either shape
        if output is not None:
            actions += [(os.POSIX_SPAWN_DUP2, output, 1), (os.POSIX_SPAWN_DUP2, output, 2)]  # type: ignore[list-item]  # tuples of either shape
        # Python ignores SIGPIPE, which children would inherit.
        pid = os.posix_spawn(
            arguments[0], list(arguments), environment, file_actions=actions, setsid=True, setsigmask=(), setsigdef=(signal.SIGPIPE,)
        )
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting[pid] = future
        return pid, future

    async def run(self, arguments: Sequence[str], environment: Mapping[str, str]) -> str:
        """Run a command with little output; return up to ``MAX_OUTPUT`` bytes of its output and errors.

        Raises:
            OSError: it cannot be started.
            CommandFailed: its exit code is not 0, it takes too long, or it printed nothing and left a child that holds its output.
        """
        reader, writer = os.pipe2(os.O_CLOEXEC)
        with descriptors.closing(reader):
            with descriptors.closing(writer):
                pid, future = self.start(arguments, environment, output=writer)
            try:
                async with asyncio.timeout(self._run_seconds):
                    code = await asyncio.shield(future)
            except (TimeoutError, asyncio.CancelledError) as error:
                terminate(pid, signal.SIGKILL)
                if isinstance(error, TimeoutError):
                    raise CommandFailed(f"{arguments[0]} was killed after {self._run_seconds:g} s") from error
                raise
            os.set_blocking(reader, False)  # a grandchild may keep the other end open
            with contextlib.suppress(BlockingIOError):
                output = os.read(reader, MAX_OUTPUT).decode(errors="replace").strip()
                if code == 0:
                    return output
                raise CommandFailed(f"{arguments[0]} ended with {code}: {output}")
            raise CommandFailed(f"{arguments[0]} ended with {code} and left a child")

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            future = self._waiting.pop(pid, None)
            if future is not None and not future.done():
                future.set_result(os.waitstatus_to_exitcode(status))
            elif future is None:
                logger.debug("reaped an orphan", extra={"pid": pid, "status": status})


def terminate(pid: int, number: signal.Signals) -> None:
    """Send this signal to a process that may have exited."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
