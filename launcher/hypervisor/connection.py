"""The port on a libvirtd, to which it reconnects."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar
from xml.etree import ElementTree as ET

import libvirt
import libvirt_qemu

from apiserver.apis.virt.places import layout
from launcher.domain.states import ACTIVE, State, reason_of, state_of
from launcher.hypervisor import conversion, eventloop
from launcher.hypervisor.agents import Agents
from launcher.hypervisor.disk_faults import DiskFaults
from launcher.hypervisor.emulator import Emulator
from launcher.hypervisor.occurrences import Occurrences
from launcher.hypervisor.port import (
    AGENT_SECONDS,
    NO_DISKS,
    NO_SPACE,
    NO_TERMS,
    AgentRefused,
    AgentUnresponsive,
    Disks,
    DomainExists,
    DomainNotFound,
    HypervisorError,
    MigrationFailed,
    Observation,
    OperationInvalid,
    OperationTimeout,
    Progress,
    Terms,
    Unavailable,
    Usage,
)
from launcher.hypervisor.translate import errors

logger = logging.getLogger(__name__)

PCI_PANIC_VERSION: Final = 9_001_000
"""In libvirt's encoding."""
CALL_SECONDS: Final = 30.0
"""libvirt waits up to 30 s for a lock on the domain."""
KEEPALIVE: Final = (5, 4)
"""Interval in seconds and count: a connection to a hung libvirtd ends after 25 s."""
AGENT_CALL_SECONDS: Final = 10.0
_PIECE_BYTES: Final = 256 << 10
CONNECT_SECONDS: Final = 0.03
"""libvirtd listens some 40 ms after its start, and each start of a guest waits for it."""

DOWNTIME_MILLISECONDS: Final = 300
"""QEMU's default of ``downtime-limit`` (``migration/options.c``)."""
SCHEMA: Final = Path("/usr/share/libvirt/schemas/domain.rng")
"""libvirtd validates XML with it."""

_MIGRATE_FLAGS: Final = (
    libvirt.VIR_MIGRATE_LIVE
    | libvirt.VIR_MIGRATE_PEER2PEER
    # The target stays paused until we resume it: only after this call returned is it certain that nothing runs here.
    | libvirt.VIR_MIGRATE_PAUSED
    | libvirt.VIR_MIGRATE_PERSIST_DEST
    | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE
)

_DISK_ERRORS: Final = {libvirt.VIR_DOMAIN_DISK_ERROR_UNSPEC: "I/O error", libvirt.VIR_DOMAIN_DISK_ERROR_NO_SPACE: NO_SPACE}

_STATISTICS: Final = (
    libvirt.VIR_DOMAIN_STATS_CPU_TOTAL
    | libvirt.VIR_DOMAIN_STATS_BALLOON
    | libvirt.VIR_DOMAIN_STATS_VCPU
    | libvirt.VIR_DOMAIN_STATS_INTERFACE
    | libvirt.VIR_DOMAIN_STATS_BLOCK
)

_LOCKED: Final = ("waiting to open tray", "is locked")
"""libvirt and QEMU have no code for a guest that keeps its medium."""

T = TypeVar("T")


def _agent_command(domain: libvirt.virDomain, question: str, seconds: int) -> str:
    domain.agentSetResponseTimeout(AGENT_SECONDS)
    answer: str = libvirt_qemu.qemuAgentCommand(domain, question, seconds, 0)
    return answer


class LibvirtHypervisor:
    """Implements ``port``, which has the rules, on the libvirtd at ``uri``.

    :meth:`run` connects and reconnects; without a connection, methods raise ``Unavailable``. Unless they say otherwise, methods with a
    domain's name raise ``DomainNotFound`` if it is missing, and ``OperationInvalid`` if it is inactive.
    """

    def __init__(
        self,
        uri: str,
        *,
        emulator: Emulator | None = None,
        agent_call_seconds: float = AGENT_CALL_SECONDS,
        agent_command: Callable[[libvirt.virDomain, str, int], str] = _agent_command,
    ) -> None:
        """Store the settings.

        Without an ``emulator``, the first domain waits until libvirt has probed its own. ``agent_call_seconds`` limits a call to a guest
        agent with the usual time to answer. ``agent_command`` sends JSON to a domain's agent, with its seconds to answer, and returns the
        answer.
        """
        self._agent_call_seconds = agent_call_seconds
        self._agent_command = agent_command
        self._uri = uri
        self._test_driver = uri.startswith("test:")
        """libvirt's test driver: no flags, no keep-alive, no agent."""
        self._emulator = emulator
        self._connection: libvirt.virConnect | None = None
        self._callbacks: list[Callable[[], None]] = []
        self._agents = Agents()
        self._panicked: set[str] = set()
        """Domains with a guest panic, which only an event reports."""
        self._powered_off: set[str] = set()
        """Domains that a watchdog powered off, which libvirt calls crashed."""
        self._reboots = Occurrences()
        self._watchdogs = Occurrences()
        self._disk_faults = DiskFaults()
        self._ready = asyncio.Event()
        self._lost = asyncio.Event()
        # One for a migration, one for an agent that does not answer to a shutdown, two for the rest.
        self._threads = concurrent.futures.ThreadPoolExecutor(4, thread_name_prefix="libvirt")
        self._agent_thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="agent")
        self._question: concurrent.futures.Future[object] | None = None

    @property
    def has_pci_panic(self) -> bool:
        """Return whether libvirt supports the panic model ``pvpanic``. The pod's daemon has this library's version."""
        return bool(libvirt.getVersion() >= PCI_PANIC_VERSION)

    async def run(self) -> None:
        """Connect to libvirtd, and reconnect, until cancelled. The object is then useless."""
        loop = asyncio.get_running_loop()
        eventloop.start()
        try:
            while True:
                self._lost.clear()
                try:
                    await self._connect(loop)
                except HypervisorError as error:
                    logger.debug("cannot connect to libvirt yet, retrying", extra={"error": str(error)})
                    await asyncio.sleep(CONNECT_SECONDS)
                    continue
                self._changed()
                await self._lost.wait()
                self._close(self._forget())
                self._changed()
                logger.warning("lost the connection to libvirtd, reconnecting")
        finally:
            # libvirtd answers late while it probes QEMU: it waits for the end of a process that this event loop must reap.
            threading.Thread(target=self._close, args=(self._forget(),), name="close", daemon=True).start()
            for threads in (self._threads, self._agent_thread):
                threads.shutdown(wait=False, cancel_futures=True)

    async def ready(self) -> None:
        """Wait until libvirtd is connected."""
        await self._ready.wait()

    async def learn(self, capabilities: str) -> None:
        """Give libvirtd the node's cache of QEMU's capabilities."""
        if (emulator := self._emulator) is None:
            return

        def learn(connection: libvirt.virConnect) -> None:
            given = emulator.keep(capabilities)
            connection.getDomainCapabilities(emulator.program, "x86_64", None, "qemu", 0)
            if not emulator.has(given):
                logger.info("libvirt has probed QEMU, because the node's cache of its capabilities is missing or outdated")

        await self._call("ask libvirtd for QEMU's capabilities", learn, None)

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called after each change."""
        self._callbacks.append(callback)

    async def observe(self, name: str) -> Observation | None:
        """Return the domain's state; None if it is missing."""

        def look(connection: libvirt.virConnect) -> Observation | None:
            domain = _lookup(connection, name)
            if domain is None:
                return None
            number, reason = domain.state()
            document = _document(domain)
            state = state_of(number)
            word = reason_of(state, reason)
            return Observation(
                name,
                domain.UUIDString(),
                "test" if self._test_driver else document.get("type", ""),
                state,
                self._cause(name) if state is State.SHUTOFF and word == "crashed" else word,
                reboots=self._reboots.of(name),
                watchdogs=self._watchdogs.of(name),
                agent_connected=self._agents.is_connected(name),
                disk_errors=_disk_errors(domain) if (state, reason) == (State.PAUSED, libvirt.VIR_DOMAIN_PAUSED_IOERROR) else (),
                disk_faults=self._disk_faults.of(name, conversion.targets_by_alias(document)),
                cid=conversion.cid(document),
                devices=conversion.devices(document),
                vcpus=conversion.vcpus(document),
                memory=conversion.memory(document),
            )

        try:
            return await self._call(f"look at domain {name}", look)
        except DomainNotFound:  # it disappeared between two calls
            return None

    async def describe(self, name: str) -> str:
        """Return the domain's present XML, without passwords."""
        return await self._call(f"describe domain {name}", lambda connection: str(connection.lookupByName(name).XMLDesc()))

    def _cause(self, name: str) -> str:
        return "panicked" if name in self._panicked else "watchdog" if name in self._powered_off else "crashed"

    async def create(self, name: str, xml: str, *, validate: bool = False) -> None:
        """Define the domain and start it paused. Raises DomainExists."""

        def create(connection: libvirt.virConnect) -> None:
            if _lookup(connection, name) is not None:
                raise DomainExists(f"define domain {name}: it exists already")
            domain = connection.defineXMLFlags(xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE if validate and SCHEMA.exists() else 0)
            try:
                domain.createWithFlags(0 if self._test_driver else libvirt.VIR_DOMAIN_START_PAUSED)
                if self._test_driver:
                    domain.suspend()
            except libvirt.libvirtError:
                _undefine(domain)
                raise

        await self._call(f"start domain {name}", create)

    async def keep_secret(self, uuid: str, value: bytes, usage: Usage = "iscsi") -> None:
        """Store or replace the secret with this UUID in libvirtd."""

        def keep(connection: libvirt.virConnect) -> None:
            connection.secretDefineXML(conversion.secret_xml(uuid, usage)).setValue(value)

        await self._call(f"keep secret {uuid}", keep)

    async def resume(self, name: str) -> None:
        """Start the guest's processors, or wake a guest that suspended itself."""

        def resume(connection: libvirt.virConnect) -> None:
            domain = connection.lookupByName(name)
            match _active_state(domain):
                case State.RUNNING:
                    return
                case State.PMSUSPENDED:
                    domain.pMWakeup()
                case _:
                    domain.resume()

        await self._call(f"resume domain {name}", resume)

    async def suspend(self, name: str) -> None:
        """Stop the guest's processors."""

        def suspend(connection: libvirt.virConnect) -> None:
            domain = connection.lookupByName(name)
            if _active_state(domain) is not State.PAUSED:
                domain.suspend()

        await self._call(f"suspend domain {name}", suspend)

    async def reset(self, name: str) -> None:
        """Reset the machine at once."""

        def reset(connection: libvirt.virConnect) -> None:
            domain = connection.lookupByName(name)
            if _active_state(domain) is State.PMSUSPENDED:
                raise OperationInvalid(f"reset domain {name}: the guest suspended itself to memory")
            self._reboots.expect(name, time.monotonic())
            domain.reset()
            self._reboots.expect(name, time.monotonic())  # the event comes about now; the call may have waited

        await self._call(f"reset domain {name}", reset)

    async def press_power_button(self, name: str, *, agent: bool = False) -> None:
        """Request that the guest powers off."""
        flag = libvirt.VIR_DOMAIN_SHUTDOWN_GUEST_AGENT if agent else libvirt.VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN
        if self._test_driver:
            flag = 0
        await self._call(f"shut down domain {name}", lambda connection: connection.lookupByName(name).shutdownFlags(flag))

    async def reboot(self, name: str, *, agent: bool = False) -> None:
        """Request that the guest reboots."""
        flag = libvirt.VIR_DOMAIN_REBOOT_GUEST_AGENT if agent else libvirt.VIR_DOMAIN_REBOOT_ACPI_POWER_BTN
        if self._test_driver:
            flag = 0
        await self._call(f"reboot domain {name}", lambda connection: connection.lookupByName(name).reboot(flag))

    async def screenshot(self, name: str, limit: int) -> bytes:
        """Return the first screen as PNG."""

        def take(connection: libvirt.virConnect) -> bytes:
            domain, stream = connection.lookupByName(name), connection.newStream()
            _active_state(domain)
            kind = domain.screenshot(stream, 0)
            picture = bytearray()
            try:
                while len(picture) <= limit and (piece := stream.recv(_PIECE_BYTES)):
                    picture += piece
            finally:
                stream.abort() if len(picture) > limit else stream.finish()
            if kind != "image/png" or len(picture) > limit:
                raise OperationInvalid(f"take a screenshot of domain {name}: libvirt gives {kind} of more than {len(picture) - 1} bytes")
            return bytes(picture)

        return await self._call(f"take a screenshot of domain {name}", take)

    async def inject_nmi(self, name: str) -> None:
        """Send a non-maskable interrupt."""
        await self._call(f"send domain {name} an NMI", lambda connection: connection.lookupByName(name).injectNMI())

    async def send_keys(self, name: str, codes: Sequence[int], hold_milliseconds: int) -> None:
        """Press these keys together."""

        def send(connection: libvirt.virConnect) -> None:
            domain = connection.lookupByName(name)
            domain.sendKey(libvirt.VIR_KEYCODE_SET_LINUX, hold_milliseconds, list(codes), len(codes), 0)

        await self._call(f"send keys to domain {name}", send)

    async def limit_disk(self, name: str, target: str, limits: Mapping[str, int]) -> None:
        """Replace all I/O limits of the disk ``target`` (``vda``)."""
        doing, tune = f"limit disk {target} of domain {name}", conversion.io_tune(limits)
        await self._with_guest(doing, name, lambda domain: domain.setBlockIoTune(target, tune, libvirt.VIR_DOMAIN_AFFECT_LIVE))

    async def add_vcpus(self, name: str, count: int) -> None:
        """Plug processors until the guest has ``count``."""

        def add(domain: libvirt.virDomain) -> None:
            if domain.vcpusFlags(libvirt.VIR_DOMAIN_AFFECT_LIVE) > count:
                raise OperationInvalid(f"domain {name} has more than {count} processors")
            domain.setVcpusFlags(count, libvirt.VIR_DOMAIN_AFFECT_LIVE)

        await self._with_guest(f"add processors to domain {name}", name, add)

    async def request_memory(self, name: str, amount: int) -> None:
        """Request that the guest has ``amount`` bytes of memory in all."""

        def request(domain: libvirt.virDomain) -> None:
            document = _document(domain)
            domain.updateDeviceFlags(conversion.with_memory(document, amount), libvirt.VIR_DOMAIN_AFFECT_LIVE)

        await self._with_guest(f"request memory for domain {name}", name, request)

    async def resize_disk(self, name: str, target: str, size: int) -> None:
        """Tell the guest that its disk has grown to ``size`` bytes."""

        def resize(domain: libvirt.virDomain) -> None:
            if domain.blockInfo(target)[0] < size:
                domain.blockResize(target, size, libvirt.VIR_DOMAIN_BLOCK_RESIZE_BYTES)

        await self._with_guest(f"resize disk {target} of domain {name}", name, resize)

    async def set_link(self, name: str, mac: str, *, up: bool) -> None:
        """Set an interface's link state."""

        def link(domain: libvirt.virDomain) -> None:
            document = _document(domain)
            if (element := conversion.with_link(document, mac, up=up)) is None:
                raise OperationInvalid(f"domain {name} does not have the interface {mac}")
            domain.updateDeviceFlags(element, libvirt.VIR_DOMAIN_AFFECT_LIVE)

        await self._with_guest(f"set the link of domain {name}", name, link)

    async def attach_disk(self, name: str, target: str, disk: str, controllers: Sequence[str] = ()) -> None:
        """Attach the missing ``controllers``, then the missing ``disk``."""

        def attach(domain: libvirt.virDomain) -> None:
            document = _document(domain)
            if conversion.disk_of(document, target) is not None:
                return
            for each in conversion.missing_controllers(document, controllers):
                domain.attachDeviceFlags(each, libvirt.VIR_DOMAIN_AFFECT_LIVE)
            domain.attachDeviceFlags(disk, libvirt.VIR_DOMAIN_AFFECT_LIVE)

        await self._with_guest(f"attach disk {target} to domain {name}", name, attach)

    async def detach_disk(self, name: str, target: str) -> bool:
        """Ask the guest to release a disk; return whether the domain lacks it then."""
        doing = f"detach disk {target} from domain {name}"
        return await self._with_guest(doing, name, lambda domain: _detached(domain, conversion.disk_of, target))

    async def change_medium(self, name: str, target: str, disk: str) -> bool:
        """Give a drive the medium in ``disk``, unless it has that; return whether the tray was unlocked."""

        def change(domain: libvirt.virDomain) -> bool:
            document = _document(domain)
            if conversion.disk_of(document, target) is None:
                raise OperationInvalid(f"domain {name} does not have the drive {target}")
            if (drive := conversion.with_medium(document, target, disk)) is None:
                return True
            try:
                domain.updateDeviceFlags(drive, libvirt.VIR_DOMAIN_AFFECT_LIVE)
            except libvirt.libvirtError as error:
                if not any(each in str(error) for each in _LOCKED):
                    raise
                return False
            return True

        return await self._with_guest(f"change the medium of drive {target} of domain {name}", name, change)

    async def attach_interface(self, name: str, mac: str, interface: str) -> None:
        """Attach the ``interface`` if it is missing."""

        def attach(domain: libvirt.virDomain) -> None:
            if conversion.interface_of(_document(domain), mac) is None:
                domain.attachDeviceFlags(interface, libvirt.VIR_DOMAIN_AFFECT_LIVE)

        await self._with_guest(f"attach interface {mac} to domain {name}", name, attach)

    async def detach_interface(self, name: str, mac: str) -> bool:
        """Ask the guest to release an interface; return whether the domain lacks it then."""
        doing = f"detach interface {mac} from domain {name}"
        return await self._with_guest(doing, name, lambda domain: _detached(domain, conversion.interface_of, mac))

    async def destroy(self, name: str) -> None:
        """Power the domain off at once."""

        def destroy(connection: libvirt.virConnect) -> None:
            domain = _lookup(connection, name)
            try:
                if domain is not None and domain.isActive():
                    domain.destroy()
            except libvirt.libvirtError as error:
                if error.get_error_code() not in (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_OPERATION_INVALID):
                    raise

        await self._call(f"destroy domain {name}", destroy)

    async def migrate(self, name: str, *, libvirt_uri: str, data_uri: str, terms: Terms = NO_TERMS, disks: Disks = NO_DISKS) -> None:
        """Migrate the domain live, without a time limit; it is then paused at the target.

        Raises MigrationFailed, DomainNotFound, OperationInvalid; Unavailable or OperationTimeout if our libvirtd does not answer.
        """

        def migrate(connection: libvirt.virConnect) -> None:
            domain = connection.lookupByName(name)
            # QEMU would keep the value of the domain's last migration.
            domain.migrateSetMaxDowntime(terms.max_downtime_milliseconds or DOWNTIME_MILLISECONDS)
            parameters, flags = conversion.migration_parameters(terms, disks)
            own = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_MIGRATABLE | libvirt.VIR_DOMAIN_XML_SECURE) if disks.moved else ""
            if own and (there := conversion.at_target(own, disks)):
                parameters[libvirt.VIR_MIGRATE_PARAM_DEST_XML] = there
            domain.migrateToURI3(libvirt_uri, {libvirt.VIR_MIGRATE_PARAM_URI: data_uri, **parameters}, _MIGRATE_FLAGS | flags)

        try:
            await self._call(f"migrate domain {name}", migrate, seconds=None)
        except (Unavailable, OperationTimeout) as error:
            if self._connection is None or self._lost.is_set():
                raise
            raise MigrationFailed(str(error)) from error  # of the connection to the target
        except (DomainNotFound, OperationInvalid, MigrationFailed):
            raise
        except HypervisorError as error:
            raise MigrationFailed(str(error)) from error

    async def save(self, name: str, path: str) -> None:
        """Write the domain's memory to a new file, and end the domain. No time limit."""
        # with VIR_DOMAIN_SAVE_PAUSED, libvirt would leave the domain paused after a failure
        await self._with_guest(f"save domain {name}", name, lambda domain: domain.save(path), seconds=None)

    async def restore(self, name: str, path: str, xml: str) -> None:
        """Start the domain, paused, from a file of :meth:`save`; no time limit."""

        def restore(connection: libvirt.virConnect) -> None:
            if _lookup(connection, name) is not None:
                raise DomainExists(f"restore domain {name}: it exists already")
            domain = connection.defineXML(xml)
            try:
                if self._test_driver:
                    connection.restore(path)
                    domain.suspend()
                else:
                    connection.restoreFlags(path, xml, libvirt.VIR_DOMAIN_SAVE_PAUSED)
            except libvirt.libvirtError:
                _undefine(domain)
                raise

        await self._call(f"restore domain {name}", restore, seconds=None)

    async def abort_job(self, name: str) -> None:
        """Abort the running migration or save."""
        try:
            await self._call(f"abort the job of domain {name}", lambda connection: connection.lookupByName(name).abortJob())
        except (DomainNotFound, OperationInvalid):
            return

    async def progress(self, name: str, *, completed: bool = False) -> Progress | None:
        """Return the running migration's or save's statistics; None without one."""
        flags = libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED if completed else 0
        try:
            stats: dict[str, Any] = await self._call(
                f"ask for the job of domain {name}", lambda connection: connection.lookupByName(name).jobStats(flags)
            )
        except (DomainNotFound, OperationInvalid):
            return None
        return conversion.progress(stats)

    async def statistics(self, name: str) -> Mapping[str, object]:
        """Return libvirt's statistics of an active domain."""

        def ask(connection: libvirt.virConnect) -> Mapping[str, object]:
            domain = connection.lookupByName(name)
            if not domain.isActive():
                raise OperationInvalid(f"read the statistics of domain {name}: it is not active")
            flags = 0 if self._test_driver else libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
            return next(
                (values for _, values in connection.domainListGetStats([domain], 0 if self._test_driver else _STATISTICS, flags)), {}
            )

        return await self._call(f"read the statistics of domain {name}", ask)

    async def ask_agent(self, name: str, command: str, arguments: Mapping[str, Any] | None = None, seconds: int = AGENT_SECONDS) -> object:
        """Return the guest agent's answer to a command, an untrusted JSON value."""
        limit = self._agent_call_seconds + max(0, seconds - AGENT_SECONDS)
        doing, connection = f"ask the guest agent of domain {name} for {command}", self._connection
        if connection is None:
            raise Unavailable(f"{doing}: libvirtd is not connected")
        if self._question is not None and not self._question.done():
            raise AgentUnresponsive(f"{doing}: it has not answered an earlier command")
        question = json.dumps({"execute": command, **({"arguments": dict(arguments)} if arguments else {})})

        def ask() -> object:
            with errors(doing):
                domain = connection.lookupByName(name)
                try:
                    return conversion.agent_answer(self._agent_command(domain, question, seconds))
                except (ValueError, TypeError, RecursionError) as error:  # the guest chose this text; it must not end our process
                    raise AgentRefused(f"{doing}: invalid answer") from error

        self._question = self._agent_thread.submit(ask)
        try:
            async with asyncio.timeout(limit):
                return await asyncio.wrap_future(self._question)
        except TimeoutError as error:
            raise AgentUnresponsive(f"{doing}: no answer within {limit:.0f} s") from error
        except HypervisorError as error:
            if type(error) is HypervisorError:  # libvirt has no error code for a refusal
                raise AgentRefused(str(error)) from error
            raise

    async def _call(self, doing: str, function: Callable[[Any], T], seconds: float | None = CALL_SECONDS) -> T:
        connection = self._connection
        if connection is None:
            raise Unavailable(f"{doing}: libvirtd is not connected")
        return await self._in_thread(doing, lambda: function(connection), seconds)

    async def _with_guest(self, doing: str, name: str, function: Callable[[Any], T], seconds: float | None = CALL_SECONDS) -> T:
        """Call a function with the domain ``name``, which must be active; return the result. ``doing`` begins an error's message."""

        def call(connection: libvirt.virConnect) -> T:
            domain = connection.lookupByName(name)
            _active_state(domain)
            return function(domain)

        return await self._call(doing, call, seconds)

    async def _in_thread(self, doing: str, function: Callable[[], T], seconds: float | None) -> T:
        def translated() -> T:
            with errors(doing):
                return function()

        try:
            async with asyncio.timeout(seconds):
                return await asyncio.get_running_loop().run_in_executor(self._threads, translated)
        except TimeoutError as error:
            raise OperationTimeout(f"{doing}: libvirt did not answer within {seconds} s; the node may be too busy") from error

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> None:
        def connect() -> libvirt.virConnect:
            connection = libvirt.open(self._uri)
            self._agents.forget()
            self._register(connection, loop)
            for domain in connection.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE):
                self._agents.look(domain.name(), partial(_agent_connected, domain))
            return connection

        self._connection = await self._in_thread("connect to libvirtd", connect, CALL_SECONDS)
        self._ready.set()

    def _register(self, connection: libvirt.virConnect, loop: asyncio.AbstractEventLoop) -> None:
        def later(function: Callable[[], None]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(function)

        def on_agent(_connection: object, domain: libvirt.virDomain, state: int, _reason: int, _opaque: object) -> None:
            connected = state == libvirt.VIR_CONNECT_DOMAIN_EVENT_AGENT_LIFECYCLE_STATE_CONNECTED
            self._agents.take(domain.name(), connected=connected)
            later(self._changed)

        def on_lifecycle(_connection: object, domain: libvirt.virDomain, event: int, _detail: int, _opaque: object) -> None:
            if event == libvirt.VIR_DOMAIN_EVENT_CRASHED:  # the only cause is a guest panic
                self._panicked.add(domain.name())
            later(self._changed)

        def on_reboot(_connection: object, domain: libvirt.virDomain, _opaque: object) -> None:
            self._reboots.take(domain.name(), time.monotonic())
            later(self._changed)

        def on_watchdog(_connection: object, domain: libvirt.virDomain, action: int, _opaque: object) -> None:
            if action == libvirt.VIR_DOMAIN_EVENT_WATCHDOG_POWEROFF:
                self._powered_off.add(domain.name())
            self._watchdogs.take(domain.name(), time.monotonic())
            later(self._changed)

        def on_device(_connection: object, _domain: libvirt.virDomain, _alias: str, *_details: object) -> None:
            later(self._changed)

        def on_close(closed: object, _reason: int, _opaque: object) -> None:
            later(lambda: self._on_close(closed))

        if not self._test_driver:
            connection.setKeepAlive(*KEEPALIVE)
            connection.registerCloseCallback(on_close, None)
            connection.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED, on_device, None)
            connection.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_AGENT_LIFECYCLE, on_agent, None)
            connection.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_MEMORY_DEVICE_SIZE_CHANGE, on_device, None)
        connection.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, on_lifecycle, None)
        connection.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_REBOOT, on_reboot, None)
        connection.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_WATCHDOG, on_watchdog, None)
        connection.domainEventRegisterAny(
            None, libvirt.VIR_DOMAIN_EVENT_ID_IO_ERROR_REASON, self._on_disk_error, lambda: later(self._changed)
        )

    def _on_disk_error(  # libvirt's arguments
        self, _of: object, domain: libvirt.virDomain, _path: str, alias: str, action: int, reason: str, changed: Callable[[], None]
    ) -> None:
        if action == libvirt.VIR_DOMAIN_EVENT_IO_ERROR_PAUSE:
            return  # the domain's state shows it, and has its own event
        ignored = action == libvirt.VIR_DOMAIN_EVENT_IO_ERROR_NONE
        if self._disk_faults.take(domain.name(), alias or "", reason or "", ignored=ignored, now=time.monotonic()):
            changed()

    def _on_close(self, closed: object) -> None:
        if self._connection is None or closed is self._connection or not self._connection.isAlive():
            self._lost.set()

    def _changed(self) -> None:
        for callback in self._callbacks:
            callback()

    def _forget(self) -> libvirt.virConnect | None:
        connection, self._connection = self._connection, None
        self._ready.clear()
        return connection

    def _close(self, connection: libvirt.virConnect | None) -> None:
        if connection is not None and not self._test_driver:
            try:
                connection.unregisterCloseCallback()
                connection.close()
            except libvirt.libvirtError as error:
                logger.debug("cannot close the old connection to libvirtd", extra={"error": str(error)})


def _lookup(connection: libvirt.virConnect, name: str) -> libvirt.virDomain | None:
    # lookupByName logs an error in libvirtd for each absent domain.
    return next((domain for domain in connection.listAllDomains() if domain.name() == name), None)


def _detached(domain: libvirt.virDomain, find: Callable[[ET.Element, str], str | None], device: str) -> bool:
    """Ask the guest to release a device; return whether the domain lacks it.

    ``find`` returns the XML of ``device``, such as a target name, in a domain's; None without it.
    """
    if (found := find(_document(domain), device)) is None:
        return True
    try:
        domain.detachDeviceFlags(found, libvirt.VIR_DOMAIN_AFFECT_LIVE)  # for up to 5 s
    except libvirt.libvirtError as error:
        if "in the process of unplug" not in str(error):  # an earlier request; QEMU has no code for it
            raise
    return find(_document(domain), device) is None


def _document(domain: libvirt.virDomain) -> ET.Element:
    return ET.fromstring(domain.XMLDesc())  # noqa: S314  # libvirtd wrote it


def _active_state(domain: libvirt.virDomain) -> State:
    state = state_of(domain.state()[0])
    if state not in ACTIVE:
        raise OperationInvalid(f"domain {domain.name()} is not running")
    return state


def _disk_errors(domain: libvirt.virDomain) -> tuple[tuple[str, str], ...]:
    try:
        found: dict[str, int] = domain.diskErrors()
    except libvirt.libvirtError as error:  # it resumed or ended meanwhile
        logger.debug("cannot read disk errors of a paused domain", extra={"error": str(error)})
        return ()
    return tuple((disk, _DISK_ERRORS.get(number, "error")) for disk, number in sorted(found.items()))


def _agent_connected(domain: libvirt.virDomain) -> bool:
    return _document(domain).find(f"devices/channel/target[@name='{layout.AGENT_CHANNEL}'][@state='connected']") is not None


def _undefine(domain: libvirt.virDomain) -> None:
    try:
        domain.undefine()
    except libvirt.libvirtError as error:
        logger.warning("cannot undefine a domain that failed to start", extra={"error": str(error)})
