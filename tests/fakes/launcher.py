"""A virt-launcher without a guest, with the real codec; its domain is only a state.

:meth:`FakeLauncher.hang_up` breaks connections, :meth:`FakeLauncher.end` ends the guest, :attr:`FakeLauncher.refuse` refuses the next
start.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from apiserver.apis.virt.places import layout, saved_image
from apiserver.apis.virt.spec import live_changes
from handler.pods.process import Launcher
from launcher.protocol import codec, messages


def run_directory(kubelet: Path, pod_uid: str) -> Path:
    path = kubelet / "pods" / pod_uid / "volumes/kubernetes.io~empty-dir" / layout.RUN_VOLUME
    path.mkdir(parents=True, exist_ok=True)
    return path


class FakeLauncher:
    def __init__(self, pod_uid: str) -> None:
        self.protocol = messages.PROTOCOL
        self.pod_uid = pod_uid
        self.status = messages.Status(1)
        self.received: list[messages.Request] = []
        self.starts = 0
        self.refuse = ""
        self.missing: tuple[str, ...] = ()
        self.full = False
        """The next starts are refused with ``NotReady``."""
        self.importing: tuple[messages.ImportStatus, ...] = ()
        """Unfinished imports: requests for them get ``NotReady``."""
        self.keeps_disks = False
        self.kept: tuple[str, ...] = ()
        self.drives: tuple[str, ...] = ()
        self.relapse = ""
        """The reason that pauses a resumed guest again."""
        self.starting: asyncio.Event | None = None
        self.texts: dict[str, str | messages.Refusal] = {}
        self.mute_reads = False
        self.mute = False
        self.instead: Callable[[messages.Action], tuple[messages.RefusalReason, str] | None] | None = None
        self.later_actions: tuple[str, ...] = messages.LATER_ACTIONS
        self.operations: tuple[str, ...] = messages.OPERATIONS
        self.resets = 0
        self.signals: list[messages.Operate] = []
        self.hellos = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._alive: tuple[int, int] = os.pipe()
        """Replaces the pidfd: it becomes readable when its other end is closed."""

    @asynccontextmanager
    async def serving(self, kubelet: Path) -> AsyncIterator[None]:
        # The real path is too long for a Unix socket.
        directory = os.open(run_directory(kubelet, self.pod_uid), os.O_PATH | os.O_DIRECTORY)
        path = Path(f"/proc/self/fd/{directory}") / layout.LAUNCHER_SOCKET
        server = await asyncio.start_unix_server(self._serve, path)
        try:
            yield
        finally:
            server.close()
            self.hang_up()
            path.unlink(missing_ok=True)
            os.close(directory)

    def identify(self, pid: int, pod_uid: str) -> Launcher:
        assert (pid, pod_uid) == (os.getpid(), self.pod_uid)
        return Launcher(pid, os.dup(self._alive[0]), os.open("/proc/self/ns/net", os.O_RDONLY), os.open("/", os.O_PATH))

    def exit(self) -> None:
        os.close(self._alive[1])
        self.hang_up()

    def hang_up(self) -> None:
        for writer in list(self._writers):
            writer.close()

    def change(self, **members: Any) -> None:
        self.status = replace(self.status, revision=self.status.revision + 1, **members)
        for writer in self._writers:
            writer.write(codec.encode(messages.StatusChanged(self.status)))

    def end(self, kind: messages.EndingKind, message: str = "") -> None:
        self.change(domain=None, ending=messages.Ending(kind, message))

    def saved(self, image: saved_image.Image) -> None:
        over = tuple(replace(each, state="succeeded") if each.id == image.id else each for each in self.status.operations)
        self.change(domain=None, operations=over, ending=messages.Ending("saved", f"the guest's memory was {image}"))

    def migration(self, uid: str, direction: messages.MigrationDirection, state: messages.MigrationState, message: str = "") -> None:
        others = tuple(each for each in self.status.migrations if each.uid != uid)
        known = self.status.migration_of(uid) or messages.MigrationStatus(uid, direction, state)
        self.change(migrations=(*others, replace(known, direction=direction, state=state, message=message)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        receiver = codec.requests()
        self.hellos += 1
        writer.write(
            codec.encode(messages.Hello(self.protocol, "fake", self.status, tuple(self.texts), self.later_actions, self.operations))
        )
        self._writers.add(writer)
        try:
            while data := await reader.read(1 << 16):
                for call in receiver.receive(data):
                    self.received.append(call.request)
                    if self.mute:
                        continue
                    if self.starting is not None and isinstance(call.request, messages.Sync):
                        await self.starting.wait()
                    if isinstance(call.request, messages.Read):
                        if self.mute_reads:
                            continue
                        writer.write(codec.encode(self._told(call.id, call.request.what)))
                        continue
                    refusal = (self.instead or self._carry_out)(call.request)
                    disks = self.missing if refusal and refusal[0] == "NotReady" else ()
                    full = bool(disks) and self.full
                    answer = (
                        messages.Refusal(call.id, *refusal, self.status, disks, full) if refusal else messages.Reply(call.id, self.status)
                    )
                    writer.write(codec.encode(answer))
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def _told(self, number: int, what: str) -> messages.Content | messages.Refusal:
        told = self.texts.get(what) or messages.Refusal(number, "Invalid", f"this virt-launcher does not provide {what!r}", self.status)
        return messages.Content(number, told) if isinstance(told, str) else replace(told, id=number)

    def _carry_out(self, request: messages.Action) -> tuple[messages.RefusalReason, str] | None:
        domain = self.status.domain
        match request:
            case messages.Sync():
                return self._start(request)
            case messages.Import():
                return self._import()
            case (
                messages.PrepareMigrationTarget()
                | messages.Migrate()
                | messages.PauseForMigration()
                | messages.AbortMigration()
                | messages.ReleaseMigration()
            ):
                return self._migrate(request)
            case _ if domain is None:
                return "Conflict", "there is no domain"
            case messages.Shutdown():
                told = self.status.grace_seconds
                self.change(stopping=True, grace_seconds=request.grace_seconds if told is None else min(told, request.grace_seconds))
            case messages.Suspend():
                self.change(domain=replace(domain, state="paused", reason="user"))
            case messages.Resume() if self.relapse:
                return "Failed", f"the guest stopped again immediately: {self.relapse}"
            case messages.Resume():
                self.change(domain=replace(domain, state="running", reason="unpaused"))
            case messages.Operate():
                return self._operate(request, domain)
            case (
                messages.AttachDisk() | messages.DetachDisk() | messages.AttachInterface() | messages.DetachInterface() | messages.Change()
            ):
                return self._change_devices(request, domain)
            case messages.SetPassword() | messages.Execute():
                pass
        return None

    def _change_devices(
        self,
        request: messages.AttachDisk | messages.DetachDisk | messages.AttachInterface | messages.DetachInterface | messages.Change,
        domain: messages.DomainStatus,
    ) -> tuple[messages.RefusalReason, str] | None:
        if isinstance(request, messages.AttachInterface | messages.DetachInterface):
            return self._plug_card(request, domain)
        if not isinstance(request, messages.Change):
            return self._plug(request, domain)
        self._change(request, domain)
        return None

    def _plug(
        self, request: messages.AttachDisk | messages.DetachDisk, domain: messages.DomainStatus
    ) -> tuple[messages.RefusalReason, str] | None:
        name = str(request.disk["name"]) if isinstance(request, messages.AttachDisk) else request.name
        if isinstance(request, messages.DetachDisk) and (self.keeps_disks or name in self.kept):
            return "NotReady", f"the guest has not given back disk {name!r} yet"
        if name in self.drives:
            empty = isinstance(request, messages.DetachDisk)
            self.change(
                domain=replace(domain, devices=tuple(replace(each, empty=empty) if each.name == name else each for each in domain.devices))
            )
            return None
        others = tuple(each for each in domain.devices if (each.kind, each.name) != ("disk", name))
        coming = (messages.DeviceStatus("disk", name, "vdb"),) if isinstance(request, messages.AttachDisk) else ()
        self.change(domain=replace(domain, devices=(*others, *coming)))
        return None

    def _plug_card(
        self, request: messages.AttachInterface | messages.DetachInterface, domain: messages.DomainStatus
    ) -> tuple[messages.RefusalReason, str] | None:
        is_coming = isinstance(request, messages.AttachInterface)
        name = request.interface.name if isinstance(request, messages.AttachInterface) else request.name
        if not is_coming and self.keeps_disks:
            return "NotReady", f"the guest has not given back interface {name!r} yet"
        others = tuple(each for each in domain.devices if (each.kind, each.name) != ("interface", name))
        self.change(domain=replace(domain, devices=(*others, *((messages.DeviceStatus("interface", name, "tap1"),) if is_coming else ()))))
        return None

    def _change(self, request: messages.Change, domain: messages.DomainStatus) -> None:
        value = live_changes.SETTINGS[request.what].value(request.device)
        taken = {"requested" if request.what == live_changes.MEMORY.what else "value": value}
        settings = tuple(
            replace(each, **taken) if (each.what, each.name) == (request.what, request.name) else each for each in domain.settings
        )
        self.change(domain=replace(domain, settings=settings))

    def _operate(self, request: messages.Operate, domain: messages.DomainStatus) -> tuple[messages.RefusalReason, str] | None:
        if self.status.operation_of(request.id) is not None:
            return None
        if any(each.number >= request.number for each in self.status.operations):
            return "Invalid", "a later operation was already carried out"
        done = messages.OperationStatus(request.id, request.number, "succeeded")
        if request.action in ("Suspend", "SuspendToNodeDisk"):
            paused = replace(domain, state="paused", reason="saving")
            self.change(domain=paused, operations=(replace(done, state="running", percent=40),))
            return None
        if request.action == "Reset":
            self.resets += 1
        elif request.action != "Resume":
            self.signals.append(request)
        elif self.relapse:
            done = replace(done, state="failed", message=f"the guest stopped again immediately: {self.relapse}")
        else:
            domain = replace(domain, state="running", reason="unpaused")
        self.change(domain=domain, operations=(*self.status.operations, done)[-messages.MAX_OPERATIONS :])
        return None

    def _migrate(
        self,
        request: messages.PrepareMigrationTarget
        | messages.Migrate
        | messages.PauseForMigration
        | messages.AbortMigration
        | messages.ReleaseMigration,
    ) -> tuple[messages.RefusalReason, str] | None:
        match request:
            case messages.PrepareMigrationTarget():
                if self.status.migration_of(request.migration_uid) is None:
                    self.migration(request.migration_uid, "incoming", "prepared")
            case messages.Migrate():
                if self.status.domain is None:
                    return "Conflict", "there is no domain"
                if self.status.migration_of(request.migration_uid) is None:
                    self.migration(request.migration_uid, "outgoing", "running")
            case messages.PauseForMigration():
                if self.status.domain is not None and self.status.migration_of(request.migration_uid) is not None:
                    self.change(domain=replace(self.status.domain, state="paused", reason="migrating"))
            case messages.AbortMigration():
                known = self.status.migration_of(request.migration_uid)
                if known is not None and known.state in ("prepared", "running"):
                    self.migration(request.migration_uid, known.direction, "cancelled", "aborted")
            case messages.ReleaseMigration():
                return self._release(request)
        return None

    def _release(self, request: messages.ReleaseMigration) -> tuple[messages.RefusalReason, str] | None:
        known, domain = self.status.migration_of(request.migration_uid), self.status.domain
        if known is None or domain is None or known.direction != "incoming" or known.state not in ("arrived", "succeeded"):
            return "Conflict", "nothing arrived"
        if known.state == "arrived":
            if not request.paused:
                domain = replace(domain, state="running", reason="unpaused")
            self.change(started=True, domain=domain)
            self.migration(request.migration_uid, "incoming", "succeeded")
        return None

    def _import(self) -> tuple[messages.RefusalReason, str] | None:
        if self.importing != self.status.imports:
            self.change(imports=self.importing)
        return ("NotReady", "images are imported") if any(each.phase != "Succeeded" for each in self.importing) else None

    def _start(self, request: messages.Sync) -> tuple[messages.RefusalReason, str] | None:
        if self.status.started or self.status.ending is not None:
            return None
        if self.missing:
            return "NotReady", f"no image: {self.missing}"
        if self.refuse:
            self.end("start-failed", self.refuse)
            return "Failed", self.refuse
        self.starts += 1
        domain = messages.DomainStatus(
            f"{request.machine.namespace}_{request.machine.name}", "u", request.machine.accelerator, "running", "booted"
        )
        self.change(started=True, domain=replace(domain, state="paused", reason="user") if request.paused else domain)
        return None
