"""Calls plugins to set up the disks of this node's pods, and to check them.

A plugin that failed is retried with increasing pauses, but not while the guest runs: a new disk would replace the guest's data.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from apiserver.apis.virt.hardware import plugin_disks
from apiserver.apis.virt.hardware.plugin_disks import Served
from apiserver.client.backoff import Backoff
from handler.plugins.answers import Description
from handler.plugins.faults import Failed, Fault, PluginRefused, TimedOut
from handler.plugins.protocol import Command, Kind
from handler.plugins.records import Element, Record, Records
from handler.pods import places
from handler.storage import answers, directories, nbd, requests

logger = logging.getLogger(__name__)

KIND: Final[Kind] = "storage"
FIRST_RETRY_SECONDS: Final = 1.0
LONGEST_RETRY_SECONDS: Final = 30.0
LONGEST_CHECK_SECONDS: Final = 120.0
"""Before another check of a disk with a problem or an unreachable server."""


class Plugins(Protocol):
    """This node's plugins: ``calling.Plugins``."""

    async def call(
        self, kind: Kind, name: str, command: Command, document: Mapping[str, Any], environment: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        """Call a plugin, and return its result. Raises Fault."""

    async def describe(self, kind: Kind, name: str) -> Description:
        """Return a plugin's description of itself. Raises Fault."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Timeouts of disk plugins, and of the servers that they name."""

    greeting_seconds: float = 10.0
    first_check_seconds: float = 10.0
    all_seconds: float = 45.0
    """For all calls of a disk's plugin and their waits; see ``network.setup.PREPARE_SECONDS``."""


DEFAULT_LIMITS: Final = Limits()


class DisksFault(Exception):
    """Plugins failed; the message names disks and plugins. ``final``: one refused, so a retry is useless."""

    def __init__(self, faults: Mapping[str, Fault]) -> None:
        """``faults`` are by disk name, at least one."""
        super().__init__("; ".join(f"disk {name!r}: {fault}" for name, fault in faults.items()))
        self.faults = faults
        self.reason = next(iter(faults.values())).reason
        self.final = any(isinstance(each, PluginRefused) for each in faults.values())
        self.retry_seconds = 0.0


@dataclass(slots=True)
class _Failing:
    fault: DisksFault
    backoff: Backoff
    again: float
    """In the event loop's time."""


@dataclass(slots=True)
class _Checked:
    backoff: Backoff
    fault: DisksFault | None = None
    again: float = 0.0
    is_wrong: bool = False
    """A plugin reported a problem, or a server was unreachable."""


class PluginDisks:
    """The disks of this node's pods that plugins set up."""

    def __init__(self, plugins: Plugins, records: Records, kubelet: Path, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._plugins = plugins
        self._records = records
        self._kubelet = kubelet
        self._added: dict[str, Mapping[str, Served]] = {}
        """By pod uid: disks that this process had set up, by name."""
        self._failing: dict[str, _Failing] = {}
        self._checked: dict[str, _Checked] = {}

    async def add(self, vm: Mapping[str, Any], pod_uid: str) -> Mapping[str, Served]:
        """Have plugins set up a pod's disks. May be called again at any time; raises the last DisksFault during the pause after it."""
        disks = requests.disks_of(vm)
        if not disks or pod_uid in self._added:
            return self._added.get(pod_uid, {})
        failing, now = self._failing.get(pod_uid), asyncio.get_running_loop().time()
        if failing is not None and now < failing.again:
            raise _again(failing.fault, failing.again - now)
        found, faults = await _side_by_side(self._limits.all_seconds, {str(each["name"]): self._add(vm, pod_uid, each) for each in disks})
        if faults:
            fault, backoff = DisksFault(faults), failing.backoff if failing else Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
            pause = backoff.next()
            self._failing[pod_uid] = _Failing(fault, backoff, asyncio.get_running_loop().time() + pause)
            logger.warning("cannot add disks to pod %s: %s", pod_uid, fault)
            raise _again(fault, pause)
        self._failing.pop(pod_uid, None)
        self._added[pod_uid] = found
        return found

    async def check(self, vm: Mapping[str, Any], pod_uid: str, unreachable: Collection[str]) -> DisksFault | None:
        """Return the problems that plugins report of a running guest's disks, or None; between checks, those of the last.

        A new process checks once, and again, ever less often, while a plugin reports a problem or a server of a disk in ``unreachable``
        does not answer.
        """
        names = {str(each["name"]) for each in requests.disks_of(vm)}
        if not names:
            return None
        checked = self._checked.get(pod_uid)
        is_first = checked is None and pod_uid not in self._added
        if checked is None:
            checked = self._checked[pod_uid] = _Checked(Backoff(self._limits.first_check_seconds, LONGEST_CHECK_SECONDS))
        checked.is_wrong = bool(names & set(unreachable)) or checked.fault is not None
        if not is_first and (not checked.is_wrong or asyncio.get_running_loop().time() < checked.again):
            return checked.fault
        _, faults = await _side_by_side(self._limits.all_seconds, {name: self._check(pod_uid, name) for name in sorted(names)})
        if not faults and not names & set(unreachable):
            checked.backoff.reset()
        checked.fault = DisksFault(faults) if faults else None
        checked.again = asyncio.get_running_loop().time() + checked.backoff.next()
        return checked.fault

    def is_wrong(self, pod_uid: str) -> bool:
        """Return whether a disk has a problem. Recovery triggers no event, so the caller must call :meth:`check` again."""
        checked = self._checked.get(pod_uid)
        return checked is not None and (checked.is_wrong or checked.fault is not None)

    def forget(self, is_alive: Callable[[str], bool]) -> None:
        """Drop the state of pods that are gone. ``plugins.deleting`` deletes what was added to them."""
        self._added = {uid: each for uid, each in self._added.items() if is_alive(uid)}
        self._failing = {uid: each for uid, each in self._failing.items() if is_alive(uid)}
        self._checked = {uid: each for uid, each in self._checked.items() if is_alive(uid)}

    async def _add(self, vm: Mapping[str, Any], pod_uid: str, disk: Mapping[str, Any]) -> Served:
        plugin, name = plugin_disks.plugin_of(disk), str(disk["name"])
        description = await self._plugins.describe(KIND, plugin)
        told = requests.document(vm, pod_uid, disk, directories.path(pod_uid, self._kubelet) / name)
        record = Record(KIND, pod_uid, name, plugin, told)
        try:
            async with self._records.lock(Element(KIND, pod_uid, name)):
                await asyncio.to_thread(self._prepare, record)
                result = await self._plugins.call(KIND, plugin, "ADD", told)
                served = answers.served_by(plugin, told["disk"], result, live_migration=description.live_migration)
                await asyncio.to_thread(self._look, pod_uid, name, served, read_only=bool(disk["readOnly"]))
                if served.protocol == "nbd":
                    await self._greet(pod_uid, name, served, read_only=bool(disk["readOnly"]))
                await asyncio.to_thread(self._records.write, record.answered(result))
        except (directories.NotThere, nbd.NoExport) as error:
            raise Failed(f"plugin {plugin} (ADD) reported success, but the disk does not exist: {error}") from error
        except OSError as error:
            raise Failed(f"plugin {plugin} (ADD): {error}") from error
        return served

    def _prepare(self, record: Record) -> None:
        with directories.opened(record.pod_uid, self._kubelet) as top:
            directories.make(top, record.element)
        self._records.write(record)

    def _look(self, pod_uid: str, name: str, served: Served, *, read_only: bool) -> None:
        with directories.opened(pod_uid, self._kubelet) as top:
            directories.check_file(top, name, served, read_only=read_only)

    async def _greet(self, pod_uid: str, name: str, served: Served, *, read_only: bool) -> None:
        try:
            with directories.opened(pod_uid, self._kubelet) as top:
                link = places.connect(top, f"{name}/{plugin_disks.SOCKET}")
        except OSError as error:
            raise nbd.NoExport(f"cannot connect to the plugin's socket {plugin_disks.SOCKET}: {error.strerror}") from error
        try:
            async with asyncio.timeout(self._limits.greeting_seconds):
                reader, writer = await asyncio.open_unix_connection(sock=link)
                try:
                    found = await nbd.ask(reader, writer, served.export)
                finally:
                    writer.close()
        except TimeoutError as error:
            raise nbd.NoExport(f"its NBD server sent no greeting within {self._limits.greeting_seconds:g} s") from error
        except OSError as error:
            raise nbd.NoExport(f"its NBD server: {error}") from error
        if found.size != served.size:
            raise nbd.NoExport(f"its NBD server offers {found.size} bytes, but the plugin reported {served.size}")
        if found.read_only and not read_only:
            raise nbd.NoExport("its NBD server is read-only, but the disk is not")

    async def _check(self, pod_uid: str, name: str) -> None:
        async with self._records.lock(Element(KIND, pod_uid, name)):
            record = await asyncio.to_thread(self._records.of, Element(KIND, pod_uid, name))
            if record is None:
                logger.warning("disk %s of pod %s: the plugin's answer is not known any more, so CHECK is skipped", name, pod_uid)
                return
            await self._plugins.call(KIND, record.plugin, "CHECK", record.request())


def _again(fault: DisksFault, seconds: float) -> DisksFault:
    found = DisksFault(fault.faults)
    found.retry_seconds = seconds
    return found


async def _side_by_side(seconds: float, calls: Mapping[str, Awaitable[Any]]) -> tuple[dict[str, Any], dict[str, Fault]]:
    found: dict[str, Any] = {}
    faults: dict[str, Fault] = {}

    async def one(name: str, call: Awaitable[Any]) -> None:
        try:
            async with asyncio.timeout(seconds):
                found[name] = await call
        except Fault as fault:
            faults[name] = fault
        except TimeoutError:
            faults[name] = TimedOut(f"its plugin did not answer within {seconds:g} s in all")

    async with asyncio.TaskGroup() as group:
        for name, call in calls.items():
            group.create_task(one(name, call))
    return found, {name: faults[name] for name in calls if name in faults}
