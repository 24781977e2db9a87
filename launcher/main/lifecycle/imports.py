"""Imports images into claims that have none, before the guest's network and domain exist (docs/decisions/disks.md).

Imports run one at a time to limit memory. A failed one is retried with growing pauses.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from apiserver.apis.meta.backoff import pause_seconds
from apiserver.apis.meta.lines import one_line
from launcher.main.decisions import import_reports, known
from launcher.main.decisions.import_reports import Progress, Result
from launcher.main.decisions.refusal import RequestRefused
from launcher.main.decisions.times import TIMES, Times
from launcher.main.disks import import_plans
from launcher.main.disks.import_plans import DIRECTORIES, Directories
from launcher.main.lifecycle.record import Record
from launcher.main.programs.children import Children, terminate
from launcher.protocol import messages

logger = logging.getLogger(__name__)

COMMAND: Final = (sys.executable, "-m", "importer")
MAX_LINE: Final = 8 << 10

_ENVIRONMENT: Final = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MALLOC_ARENA_MAX": "1"}
_PASSED_ON: Final = ("PYTHONPATH",)


class Imports:
    """Runs one machine's imports on request."""

    def __init__(
        self,
        children: Children,
        record: Record,
        *,
        directories: Directories = DIRECTORIES,
        command: Sequence[str] = COMMAND,
        times: Times = TIMES,
    ) -> None:
        self._children = children
        self._record = record
        self._times = times
        self._directories = directories
        self._command = command
        self._begun = asyncio.Event()
        self._one = asyncio.Semaphore(1)
        self._plans: Mapping[str, bytes] = {}

    async def ask(self, machine: messages.Machine) -> None:
        """Start the machine's imports, unless they are started or done.

        Raises RequestRefused: NotReady until all are done, Conflict if the pod is terminating.
        """
        if self._record.known.machine is not None or self._record.known.ended:
            return
        if self._record.known.over:
            raise RequestRefused("Conflict", "this pod is terminating")
        if not self._begun.is_set():
            plans = await asyncio.to_thread(import_plans.missing, machine.domain, self._directories)
            if not self._begun.is_set():
                self._plans = plans
                self._record.take(known.importing, tuple(messages.ImportStatus(name) for name in plans))
                self._begun.set()
        if left := tuple(each.disk for each in self._record.known.status.imports if each.phase != "Succeeded"):
            raise RequestRefused("NotReady", f"importing images of disks: {', '.join(left)}", left)

    async def run(self) -> None:
        """Wait for :meth:`ask`, then run the imports until all are done or this is cancelled."""
        await self._begun.wait()
        async with asyncio.TaskGroup() as group:
            for name, plan in self._plans.items():
                group.create_task(self._import(name, plan))

    async def _import(self, disk: str, plan: bytes) -> None:
        failures = 0
        while True:
            async with self._one:
                why = await self._try(disk, plan)
            if not why:
                self._note(disk, phase="Succeeded", message="")
                logger.info("the image of disk %s is imported", disk)
                return
            failures += 1
            pause = pause_seconds(failures, *self._times.import_retry)
            logger.warning("the import for disk %s failed, retrying in %g s: %s", disk, pause, why)
            self._note(disk, phase="Retrying", message=why, failures=failures)
            await asyncio.sleep(pause)

    async def _try(self, disk: str, plan: bytes) -> str:
        inward, outward = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
        try:
            os.write(inward[1], plan)  # a pipe has room for the longest plan
            pid, ended = self._children.start(self._command, _environment(), output=outward[1], given=inward[0])
        except OSError as error:
            os.close(outward[0])
            return f"cannot start the importer: {error.strerror or error}"
        finally:
            for each in (*inward, outward[1]):
                os.close(each)
        try:
            result = await self._follow(disk, outward[0])
            code = await asyncio.shield(ended)
        except BaseException:
            terminate(pid, signal.SIGKILL)
            raise
        return import_reports.failure(code, result)

    async def _follow(self, disk: str, output: int) -> Result | None:
        reader = asyncio.StreamReader(limit=MAX_LINE)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(output, "rb", 0))
        result: Result | None = None
        try:
            while True:
                try:
                    line = await reader.readline()
                except ValueError:
                    continue
                if not line:
                    return result
                match _report(line):
                    case Result() as found:
                        result = found
                    case Progress() as progress:
                        self._note(disk, **dataclasses.asdict(progress), message="")
                    case None:
                        continue
        finally:
            transport.close()

    def _note(self, disk: str, **changes: Any) -> None:  # noqa: ANN401  # fields of ImportStatus
        now = self._record.known.status.imports
        after = tuple(dataclasses.replace(each, **changes) if each.disk == disk else each for each in now)
        if after != now:
            self._record.take(known.importing, after)


def _report(line: bytes) -> Progress | Result | None:
    try:
        return import_reports.read(line)
    except ValueError:
        logger.warning("importer: %s", one_line(line.decode(errors="replace"), import_reports.MAX_MESSAGE))
        return None


def _environment() -> dict[str, str]:
    return {**_ENVIRONMENT, **{name: os.environ[name] for name in _PASSED_ON if name in os.environ}}
