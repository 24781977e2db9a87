"""Imports of images into claims that have none, before there is a network of the guest's or a domain.

Each is done by a process of its own (the package ``importer``), which sees what strangers wrote; this one only reads how far it is. One
runs at a time, so that all of them together take no more memory than one. One that failed is tried again, later and later, for as long as
the pod lives: what is wrong is mostly mended elsewhere, and whoever gives up switches the machine off.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

from apiserver.apis.meta.backoff import pause_seconds
from apiserver.apis.meta.lines import one_line
from apiserver.apis.virt import disk_imports, layout
from apiserver.apis.virt.hardware import disks
from launcher.domain.values import segment
from launcher.main import known
from launcher.main.children import Children, terminate
from launcher.main.record import Record
from launcher.main.refusal import RequestRefused
from launcher.protocol import messages

logger = logging.getLogger(__name__)

COMMAND: Final = (sys.executable, "-m", "importer")
BACKOFF_SECONDS: Final = (5.0, 300.0)
"""Before the next try: after the first failure, doubled with each further one in a row, and the longest."""
MAX_LINE: Final = 8 << 10
MAX_MESSAGE: Final = 512
MAX_BYTES: Final = 1 << 62

_ENVIRONMENT: Final = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MALLOC_ARENA_MAX": "1"}
_PASSED_ON: Final = ("PYTHONPATH",)
_PHASES: Final = frozenset(get_args(messages.ImportPhase))


@dataclass(frozen=True, slots=True)
class Places:
    """Directories with a subdirectory for each disk."""

    disks: Path = Path(layout.DISKS_DIRECTORY)
    devices: Path = Path(layout.DEVICES_DIRECTORY)
    secrets: Path = Path(layout.IMPORT_SECRETS_DIRECTORY)
    authorities: Path = Path(layout.IMPORT_AUTHORITIES_DIRECTORY)


class Imports:
    """Carries out the imports of one machine, once it is asked for them."""

    def __init__(self, children: Children, record: Record, places: Places | None = None) -> None:
        """Do nothing yet; ``places`` are the pod's unless others are given."""
        self._children = children
        self._record = record
        self._places = places or Places()
        self._begun = asyncio.Event()
        self._one = asyncio.Semaphore(1)
        self._plans: Mapping[str, bytes] = {}

    async def ask(self, machine: messages.Machine) -> None:
        """Begin, unless that was done, what the machine needs before its domain can be made.

        Raises:
            RequestRefused: ``NotReady`` as long as it is not done; ``Status.imports`` has how far it is.
        """
        if self._record.known.machine is not None or self._record.known.ended:
            return
        if self._record.known.over:
            raise RequestRefused("Conflict", "this pod is ending")
        if not self._begun.is_set():
            plans = await asyncio.to_thread(self._missing, machine.domain)
            if not self._begun.is_set():
                self._plans = plans
                self._record.take(known.importing, tuple(messages.ImportStatus(name) for name in plans))
                self._begun.set()
        if left := tuple(each.disk for each in self._record.known.status.imports if each.phase != "Succeeded"):
            raise RequestRefused("NotReady", f"images of disks are imported: {', '.join(left)}", left)

    async def run(self) -> None:
        """Work until all is done or this is cancelled."""
        await self._begun.wait()
        async with asyncio.TaskGroup() as group:
            for name, plan in self._plans.items():
                group.create_task(self._import(name, plan))

    def _missing(self, domain: Mapping[str, Any]) -> dict[str, bytes]:
        """Return the plans of imports into claims that have no image, by disk."""
        found: dict[str, bytes] = {}
        for position, disk in enumerate(disks.defaulted(domain)):
            given = disk_imports.of(disk)
            if given is None:
                continue
            name = segment(disk["name"], f"devices.disks[{position}].name")
            directory, device = self._places.disks / name, self._places.devices / name
            if device.is_block_device():
                if _is_due(device):
                    found[name] = self._plan(disk, given, name, device=str(device))
            elif not os.path.lexists(directory / layout.DISK_IMAGE):
                found[name] = self._plan(disk, given, name, directory=str(directory))
        return found

    def _plan(self, disk: Mapping[str, Any], given: Mapping[str, Any], name: str, **place: str) -> bytes:
        plan: dict[str, Any] = {**place, "source": dict(given), "size": disk_imports.size(given)}
        if disk_imports.secret(disk):
            plan["secret"] = str(self._places.secrets / name)
        if disk_imports.authorities(disk) is not None:
            plan["authorities"] = str(self._places.authorities / name / disk_imports.AUTHORITIES_KEY)
        return json.dumps(plan).encode()

    async def _import(self, disk: str, plan: bytes) -> None:
        failures = 0
        while True:
            async with self._one:
                why = await self._try(disk, plan)
            if not why:
                self._told(disk, phase="Succeeded", message="")
                logger.info("the image of disk %s is imported", disk)
                return
            failures += 1
            pause = pause_seconds(failures, *BACKOFF_SECONDS)
            logger.warning("the import for disk %s failed; it is tried again in %g s: %s", disk, pause, why)
            self._told(disk, phase="Retrying", message=why, failures=failures)
            await asyncio.sleep(pause)

    async def _try(self, disk: str, plan: bytes) -> str:
        """Run one process; return why it failed, or an empty string."""
        inward, outward = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
        try:
            os.write(inward[1], plan)  # a pipe holds more than the longest
            pid, ended = self._children.start(COMMAND, _environment(), output=outward[1], given=inward[0])
        except OSError as error:
            os.close(outward[0])
            return f"the importer cannot be started: {error.strerror or error}"
        finally:
            for each in (*inward, outward[1]):
                os.close(each)
        try:
            result = await self._follow(disk, outward[0])
            code = await asyncio.shield(ended)
        except BaseException:
            terminate(pid, signal.SIGKILL)
            raise
        if code == 0 and result == "":
            return ""
        return result or f"the importer ended with {code}, and said nothing" + (": memory?" if code == -signal.SIGKILL else "")

    async def _follow(self, disk: str, output: int) -> str | None:
        """Take in what a process says until it says no more; return its last word: why it failed, an empty string, or None."""
        reader = asyncio.StreamReader(limit=MAX_LINE)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(output, "rb", 0))
        result: str | None = None
        try:
            while True:
                try:
                    line = await reader.readline()
                except ValueError:  # a line that is longer: not one of ours
                    continue
                if not line:
                    return result
                result = self._take(disk, line, result)
        finally:
            transport.close()

    def _take(self, disk: str, line: bytes, before: str | None) -> str | None:
        try:
            said = json.loads(line)
            if "result" in said:
                return "" if said["result"] == "Succeeded" else one_line(str(said.get("message") or "it failed"), MAX_MESSAGE)
            if said["phase"] in _PHASES:
                self._told(
                    disk, phase=said["phase"], transferred_bytes=_bytes(said["bytes"]), total_bytes=_bytes(said["total"]), message=""
                )
        except (ValueError, TypeError, KeyError, RecursionError):
            logger.warning("the importer said: %s", one_line(line.decode(errors="replace"), MAX_MESSAGE))
        return before

    def _told(self, disk: str, **changes: Any) -> None:  # noqa: ANN401  # fields of ImportStatus
        now = self._record.known.status.imports
        after = tuple(dataclasses.replace(each, **changes) if each.disk == disk else each for each in now)
        if after != now:
            self._record.take(known.importing, after)


def _is_due(device: Path) -> bool:
    """Return whether a block device has no disk; of one that cannot be read the importer says why."""
    try:
        with device.open("rb", buffering=0) as opened:
            return disk_imports.is_due(opened.read(disk_imports.HEAD_BYTES))
    except OSError:
        return True


def _environment() -> dict[str, str]:
    return {**_ENVIRONMENT, **{name: os.environ[name] for name in _PASSED_ON if name in os.environ}}


def _bytes(said: object) -> int:
    return min(max(said, 0), MAX_BYTES) if isinstance(said, int) else 0
