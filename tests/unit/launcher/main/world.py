"""A pod over the fake hypervisor, and its tests' helpers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher.domain.states import State
from launcher.main.decisions.times import Times
from launcher.main.disks.disk_servers import Network
from launcher.main.disks.saved_images import Places
from launcher.main.managed_domain import ManagedDomain
from launcher.main.programs.children import Children
from launcher.main.serving.console import Console
from launcher.main.serving.serial_ports import SerialPorts
from launcher.protocol import messages
from tests.fakes.hypervisor import FakeHypervisor

NAME = "default_testvm"
SPECIFICATION: dict[str, Any] = {"memory": {"guest": "128Mi"}}
TAP = messages.Interface("default", "52:54:00:00:00:02", "tap0")
MACHINE = messages.Machine("default", "testvm", "u-1", SPECIFICATION, "qemu", (TAP,), 0.4)
SYNC = messages.Sync(MACHINE)
PREPARE = messages.PrepareMigrationTarget("m1", MACHINE)
RELEASE = messages.ReleaseMigration("m1")
QUICK = Times(
    look=0.01,
    undo_retry=0.01,
    stop=0.01,
    press=0.03,
    progress=0.01,
    memory_look=0.01,
    settle=0.01,
    agent_round=0.01,
    agent_pause=0.0,
    clock_retry=0.01,
    save_look=0.01,
    thaw_retry=0.01,
)
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"


def connection(port: int, state: str = "01", address: str = "0100007F") -> str:
    return f"   0: 0100007F:C350 {address}:{port:04X} {state} 00000000:00000000 00:00000000 00000000   107        0 1 1"


class ConnectedConsole(Console):
    """Its serial port appears immediately, or when the test says so."""

    is_held = False

    def attach(self) -> None:
        if not self.is_held:
            self.connected.set()


class IdleChildren(Children):
    """Commands that succeed, and only create the files of overlays."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[list[str]] = []

    async def run(self, arguments: Sequence[str], environment: Mapping[str, str]) -> str:
        await asyncio.sleep(0)
        self.runs.append(list(arguments))
        for overlay in (each for each in arguments if each.endswith(".qcow2.new")):
            Path(overlay).touch()
        return ""


Call = Callable[[], Awaitable[Any]]


async def hangs(_call: object) -> None:
    await asyncio.Event().wait()


class FakeNetwork(Network):
    def __init__(self) -> None:
        self.ports: set[int] = set()
        self.connected: list[int] = []
        self.listening: set[str] = set()
        self.looked: Callable[[], None] = lambda: None

    async def answers(self, host: str, port: int) -> bool:
        await asyncio.sleep(0)
        return bool(host) and port in self.ports

    async def resolves(self, host: str) -> bool:
        return not host.endswith(".invalid")

    def listens(self, path: str) -> bool:
        self.looked()
        return path in self.listening

    def connections(self) -> list[str]:
        return ["\n".join([HEAD, *map(connection, self.connected)])]


class World:
    def __init__(self, directory: Path, times: Times = QUICK) -> None:
        self.network = FakeNetwork()
        self.free: dict[str, int] = {}
        self.memory: int | None = None
        self.lacked_memory = False
        self.hypervisor = FakeHypervisor()
        self.children = IdleChildren()
        self.served: list[messages.Machine] = []
        self.serving_fails: OSError | None = None
        self._directory = directory
        self.images = directory / "images"
        """The claim for images of the guest's memory; a test makes it."""
        self.domain = ManagedDomain(
            self.hypervisor,
            self._console,
            lambda changed: SerialPorts(directory, changed),
            self.children,
            qemu_log=lambda _name: directory / "log",
            serve_addresses=self.serve_addresses,
            status_changed=lambda: None,
            network=self.network,
            measure=lambda _specification, names: {name: self.free[name] for name in names if name in self.free},
            memory=lambda: self.memory,
            lacked_memory=lambda: self.lacked_memory,
            times=times,
            images=Places(self.images, directory / "node-disk"),
        )
        self.over = False

    def _console(self, changed: Callable[[], None]) -> Console:
        self.console = ConnectedConsole(self._directory / "serial", changed)
        return self.console

    def hold_console(self) -> Callable[[], None]:
        self.console.is_held = True
        return self.console.connected.set

    async def run(self) -> None:
        await self.domain.run()
        self.over = True

    def serve_addresses(self, machine: messages.Machine) -> None:
        if self.serving_fails is not None:
            raise self.serving_fails
        self.served.append(machine)

    @property
    def status(self) -> messages.Status:
        return self.domain.status

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.005)

    async def ends(self, kind: str) -> None:
        await self.until(lambda: self.over)
        assert self.status.ending is not None
        assert self.status.ending.kind == kind


def state_of(world: World, uid: str = "m1") -> str:
    migration = world.status.migration_of(uid)
    return migration.state if migration is not None else ""


async def arrived(world: World) -> None:
    await world.domain.handle(PREPARE)
    world.hypervisor.become(NAME, State.PAUSED, "user")
    await world.until(lambda: state_of(world) == "arrived")
