from __future__ import annotations

import asyncio
import dataclasses
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from apiserver.apis.virt.hardware import disk_io_tune
from launcher.domain.states import State
from launcher.hypervisor import conversion
from launcher.hypervisor.port import (
    AGENT_SECONDS,
    NO_DISKS,
    NO_TERMS,
    AgentRefused,
    AgentUnresponsive,
    Device,
    Disks,
    DomainExists,
    DomainNotFound,
    HypervisorError,
    MigrationAborted,
    MigrationFailed,
    Observation,
    OperationInvalid,
    Progress,
    Terms,
    Unavailable,
    Usage,
)

FIRST_CID = 3


class FakeHypervisor:
    """A Hypervisor in memory. The methods after the port's act as the guest and the outside world."""

    def __init__(self, *, connected: bool = True) -> None:
        self.domains: dict[str, Observation] = {}
        self._xml: dict[str, str] = {}
        self.created: list[str] = []
        self.learned: list[str] = []
        self.secrets: dict[str, bytes] = {}
        self.usages: dict[str, Usage] = {}
        self.calls: list[str] = []
        self.answers: dict[str, object] = {}
        """Of the guest agent by command; exceptions are raised."""
        self.questions: list[tuple[str, Mapping[str, Any]]] = []
        self.terms: list[Terms] = []
        self.disks: list[Disks] = []
        self.fail_next: HypervisorError | None = None
        """Raised by the next ``create``, ``reset``, ``migrate``, ``abort_job`` or ``destroy``."""
        self.figures: dict[str, object] = {"cpu.time": 1_000_000_000}
        self.picture: bytes | None = None
        self.took: Progress | None = None
        self.holds_saves = False
        """A save waits for ``end_migration`` or ``abort_job``."""
        self.attached: list[str] = []
        self.sizes: dict[str, int] = {}
        self.keeps_disks = False
        self.keeps_memory = False
        self._callbacks: list[Callable[[], None]] = []
        self._connected = asyncio.Event()
        self._migrations: dict[str, asyncio.Future[None]] = {}
        if connected:
            self._connected.set()

    has_pci_panic = True

    async def ready(self) -> None:
        await self._connected.wait()

    async def learn(self, capabilities: str) -> None:
        await self._step("learn")
        self.learned.append(capabilities)

    def subscribe(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    async def observe(self, name: str) -> Observation | None:
        await self._step("observe")
        return self.domains.get(name)

    async def describe(self, name: str) -> str:
        await self._step("describe")
        if name not in self.domains:
            raise DomainNotFound(f"describe domain {name}: it does not exist")
        return self._xml[name]

    async def create(self, name: str, xml: str, *, validate: bool = False) -> None:
        del validate
        await self._step("create")
        self._fail()
        if name in self.domains:
            raise DomainExists(f"start domain {name}: it exists already")
        try:
            root = ET.fromstring(xml)
        except ET.ParseError as error:
            raise HypervisorError(f"start domain {name}: {error}") from error
        self.created.append(xml)
        self._xml[name] = xml
        identity = root.findtext("uuid") or str(uuid.uuid4())
        sockets = root.find("devices/vsock/cid")
        cid = 0 if sockets is None else int(sockets.get("address") or FIRST_CID)
        devices = tuple(dataclasses.replace(each, address="") for each in conversion.devices(root))
        now = Observation(
            name, identity, root.get("type", ""), State.PAUSED, "user", cid=cid, devices=devices, vcpus=conversion.vcpus(root)
        )
        self._put(dataclasses.replace(now, memory=conversion.memory(root)))

    async def keep_secret(self, uuid: str, value: bytes, usage: Usage = "iscsi") -> None:
        await self._step("keep secret")
        self._fail()
        self.secrets[uuid] = value
        self.usages[uuid] = usage

    async def resume(self, name: str) -> None:
        await self._step("resume")
        self._change(name, State.RUNNING, "unpaused")

    async def suspend(self, name: str) -> None:
        await self._step("suspend")
        self._change(name, State.PAUSED, "user")

    async def reset(self, name: str) -> None:
        await self._step("reset")
        self._fail()
        if self._active(name).state is State.PMSUSPENDED:
            raise OperationInvalid(f"reset domain {name}: the guest suspended itself to memory")
        self._changed()

    async def press_power_button(self, name: str, *, agent: bool = False) -> None:
        await self._step("ask agent" if agent else "press power button")
        self._active(name)

    async def reboot(self, name: str, *, agent: bool = False) -> None:
        await self._step("ask agent to reboot" if agent else "reboot")
        self._fail()
        self._active(name)

    async def screenshot(self, name: str, limit: int) -> bytes:
        await self._step("screenshot")
        self._active(name)
        if self.picture is None or len(self.picture) > limit:
            raise OperationInvalid(f"no picture of at most {limit} bytes")
        return self.picture

    async def inject_nmi(self, name: str) -> None:
        await self._step("inject NMI")
        self._fail()
        self._active(name)

    async def send_keys(self, name: str, codes: Sequence[int], hold_milliseconds: int) -> None:
        await self._step(f"send keys {list(codes)} for {hold_milliseconds} ms")
        self._fail()
        self._active(name)

    async def limit_disk(self, name: str, target: str, limits: Mapping[str, int]) -> None:
        await self._step(f"limit disk {target}")
        self._fail()
        told = tuple((key, limits[key]) for key in disk_io_tune.NAMES if limits.get(key))
        self._alter(name, lambda each: dataclasses.replace(each, limits=told) if each.target == target else each)

    async def add_vcpus(self, name: str, count: int) -> None:
        await self._step(f"add processors up to {count}")
        self._fail()
        domain = self._active(name)
        if domain.vcpus > count:
            raise OperationInvalid(f"domain {name} has more than {count} processors")
        if count > int(ET.fromstring(self._xml[name]).findtext("vcpu") or 1):
            raise HypervisorError("requested vcpus is greater than max allowable vcpus")
        self._put(dataclasses.replace(domain, vcpus=count))

    async def request_memory(self, name: str, amount: int) -> None:
        await self._step(f"request {amount >> 20} MiB of memory")
        self._fail()
        domain, document = self._active(name), ET.fromstring(self._xml[name])
        conversion.with_memory(document, amount)
        if amount > conversion.amount_of(document.find("memory")) or domain.memory is None:
            raise HypervisorError("requested size must be smaller than or equal to @size")
        more = amount - domain.memory.at_boot
        plugged = domain.memory.plugged if self.keeps_memory else more
        self._put(dataclasses.replace(domain, memory=dataclasses.replace(domain.memory, requested=more, plugged=plugged)))

    async def resize_disk(self, name: str, target: str, size: int) -> None:
        await self._step(f"resize disk {target}")
        self._fail()
        if all(each.target != target for each in self._active(name).devices):
            raise HypervisorError(f"no disk {target}")
        self.sizes[target] = max(size, self.sizes.get(target, 0))

    async def set_link(self, name: str, mac: str, *, up: bool) -> None:
        await self._step(f"set link {'up' if up else 'down'}")
        self._fail()
        if not any(each.mac == mac.lower() for each in self._active(name).devices):
            raise OperationInvalid(f"no interface {mac}")
        self._alter(name, lambda each: dataclasses.replace(each, is_up=up) if each.mac == mac.lower() else each)

    def _alter(self, name: str, altered: Callable[[Device], Device]) -> None:
        domain = self._active(name)
        self._put(dataclasses.replace(domain, devices=tuple(map(altered, domain.devices))))

    async def attach_disk(self, name: str, target: str, disk: str, controllers: Sequence[str] = ()) -> None:
        await self._step(f"attach {target}")
        self._fail()
        domain = self._active(name)
        if all(each.target != target for each in domain.devices):
            self.attached += [*controllers, disk]
            self._put(dataclasses.replace(domain, devices=(*domain.devices, Device("disk", target))))

    async def detach_disk(self, name: str, target: str) -> bool:
        await self._step(f"detach {target}")
        self._fail()
        domain = self._active(name)
        if not self.keeps_disks:
            self._put(dataclasses.replace(domain, devices=tuple(each for each in domain.devices if each.target != target)))
        return all(each.target != target for each in self.domains[name].devices)

    async def change_medium(self, name: str, target: str, disk: str) -> bool:
        await self._step(f"change medium of {target}")
        self._fail()
        if all(each.target != target for each in self._active(name).devices):
            raise OperationInvalid(f"domain {name} does not have the drive {target}")
        if not self.keeps_disks:
            is_empty = not conversion.source_of(ET.fromstring(disk))
            self._alter(name, lambda each: dataclasses.replace(each, is_empty=is_empty) if each.target == target else each)
        return not self.keeps_disks

    async def attach_interface(self, name: str, mac: str, interface: str) -> None:
        await self._step(f"attach {mac}")
        self._fail()
        domain = self._active(name)
        if all(each.mac != mac.lower() for each in domain.devices):
            self.attached.append(interface)
            self._put(dataclasses.replace(domain, devices=(*domain.devices, Device("interface", "tap1", mac=mac.lower(), is_up=True))))

    async def detach_interface(self, name: str, mac: str) -> bool:
        await self._step(f"detach {mac}")
        self._fail()
        domain = self._active(name)
        if not self.keeps_disks:
            self._put(dataclasses.replace(domain, devices=tuple(each for each in domain.devices if each.mac != mac.lower())))
        return all(each.mac != mac.lower() for each in self.domains[name].devices)

    async def destroy(self, name: str) -> None:
        await self._step("destroy")
        self._fail()
        domain = self.domains.get(name)
        if domain is not None and domain.active:
            self._put(dataclasses.replace(domain, state=State.SHUTOFF, reason="destroyed"))

    async def migrate(self, name: str, *, libvirt_uri: str, data_uri: str, terms: Terms = NO_TERMS, disks: Disks = NO_DISKS) -> None:
        self.terms.append(terms)
        self.disks.append(disks)
        await self._step(f"migrate to {libvirt_uri} and {data_uri}")
        self._fail()
        self._active(name)
        if "/nowhere" in libvirt_uri:
            raise MigrationFailed(f"migrate domain {name}: there is no libvirtd")
        future = self._migrations[name] = asyncio.get_running_loop().create_future()
        try:
            await future
        finally:
            del self._migrations[name]
        del self.domains[name]
        self._changed()

    async def save(self, name: str, path: str) -> None:
        await self._step("save")
        self._fail()
        domain = self._active(name)
        if self.holds_saves:
            self._put(dataclasses.replace(domain, state=State.PAUSED, reason="saving"))
            future = self._migrations[name] = asyncio.get_running_loop().create_future()
            try:
                await future
            except HypervisorError:
                if self.domains[name].active:
                    self._put(dataclasses.replace(domain, reason="save canceled"))
                raise
            finally:
                del self._migrations[name]
        file = Path(path)
        file.write_bytes(saved_file(self._xml[name]))
        file.chmod(0o600)
        self._put(dataclasses.replace(domain, state=State.SHUTOFF, reason="saved"))

    async def restore(self, name: str, path: str, xml: str) -> None:
        await self._step("restore")
        self._fail()
        if name in self.domains:
            raise DomainExists(f"restore domain {name}: it exists already")
        kept = Path(path).read_bytes()[92:].partition(b"\0")[0].decode()
        if ET.fromstring(kept).findtext("memory") != ET.fromstring(xml).findtext("memory"):
            raise HypervisorError(f"restore domain {name}: Target domain max memory does not match source")
        await self.create(name, xml)
        self._put(dataclasses.replace(self.domains[name], reason="migrating"))

    async def abort_job(self, name: str) -> None:
        await self._step("abort")
        self._fail()
        self.end_migration(name, MigrationAborted(f"migrate domain {name}: aborted"))

    async def progress(self, name: str, *, completed: bool = False) -> Progress | None:
        await self._step("progress")
        if completed:
            return self.took
        return Progress(elapsed_milliseconds=1, memory_total_bytes=2) if name in self._migrations else None

    async def statistics(self, name: str) -> Mapping[str, object]:
        await self._step("statistics")
        if not self._active(name).active:
            raise OperationInvalid("it is not active")
        return self.figures

    async def ask_agent(self, name: str, command: str, arguments: Mapping[str, Any] | None = None, seconds: int = AGENT_SECONDS) -> object:
        del seconds
        await self._step(command)
        self.questions.append((command, arguments or {}))
        if not self._active(name).agent_connected:
            raise AgentUnresponsive("no agent is connected")
        if command not in self.answers:
            raise AgentRefused(f"The command {command} has not been found")
        answer = self.answers[command]
        if callable(answer):
            answer = answer(arguments or {})
        if isinstance(answer, Exception):
            raise answer
        return answer

    def intercept(self, method: str, around: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]) -> None:
        done = getattr(self, method)

        async def intercepted(*arguments: Any, **also: Any) -> Any:
            return await around(lambda: done(*arguments, **also))

        setattr(self, method, intercepted)

    def connect(self, *, connected: bool) -> None:
        if connected:
            self._connected.set()
        else:
            self._connected.clear()
        self._changed()

    def become(self, name: str, state: State, reason: str, *, agent: bool = False) -> None:
        domain = self.domains.get(name) or Observation(name, str(uuid.uuid4()), "qemu", state, reason)
        self._put(dataclasses.replace(domain, state=state, reason=reason, agent_connected=agent))

    def vanish(self, name: str) -> None:
        del self.domains[name]
        self._changed()

    def end_migration(self, name: str, error: MigrationFailed | Unavailable | None = None) -> None:
        future = self._migrations.get(name)
        if future is not None and not future.done():
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

    @property
    def migrating(self) -> bool:
        return bool(self._migrations)

    async def _step(self, call: str) -> None:
        self.calls.append(call)
        await asyncio.sleep(0)
        if not self._connected.is_set():
            raise Unavailable(f"{call}: not connected")

    def _fail(self) -> None:
        error, self.fail_next = self.fail_next, None
        if error is not None:
            raise error

    def _active(self, name: str) -> Observation:
        domain = self.domains.get(name)
        if domain is None:
            raise DomainNotFound(f"no domain {name}")
        if not domain.active:
            raise OperationInvalid(f"domain {name} is not running")
        return domain

    def _change(self, name: str, state: State, reason: str) -> None:
        domain = self._active(name)
        if domain.state is not state:
            self._put(dataclasses.replace(domain, state=state, reason=reason))

    def _put(self, domain: Observation) -> None:
        self.domains[domain.name] = domain
        self._changed()

    def _changed(self) -> None:
        for callback in self._callbacks:
            callback()


def saved_file(xml: str, memory: bytes = b"memory") -> bytes:
    text = xml.encode() + b"\0"
    return b"LibvirtQemudSave" + (2).to_bytes(4, "little") + len(text).to_bytes(4, "little") + bytes(68) + text + memory
