"""A pod over the double of the hypervisor, and what its tests ask of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from launcher.domain.states import State
from launcher.main.children import Children
from launcher.main.console import Console
from launcher.main.managed_domain import ManagedDomain
from launcher.main.serial_ports import SerialPorts
from launcher.protocol import messages
from tests.fakes.hypervisor import FakeHypervisor

NAME = "default_testvm"
SPECIFICATION: dict[str, Any] = {"memory": {"guest": "128Mi"}}
TAP = messages.Interface("default", "52:54:00:00:00:02", "tap0")
MACHINE = messages.Machine("default", "testvm", "u-1", SPECIFICATION, "qemu", (TAP,), 0.4)
SYNC = messages.Sync(MACHINE)
PREPARE = messages.PrepareMigrationTarget("m1", MACHINE)
RELEASE = messages.ReleaseMigration("m1")


class ConnectedConsole(Console):
    """A console whose serial port is there as soon as it is wanted."""

    def attach(self) -> None:
        self.connected.set()


class World:
    """A pod over the double."""

    def __init__(self, directory: Path) -> None:
        self.hypervisor = FakeHypervisor()
        self.served: list[messages.Machine] = []
        self.serving_fails: OSError | None = None
        self.dhcp = messages.DhcpStatus()
        self.domain = ManagedDomain(
            self.hypervisor,
            lambda changed: ConnectedConsole(directory / "serial", changed),
            lambda changed: SerialPorts(directory, changed),
            Children(),
            qemu_log=lambda _name: directory / "log",
            serve_addresses=self.serve_addresses,
            mend_addresses=lambda: self.dhcp,
            status_changed=lambda: None,
        )
        self.over = False

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
        async with asyncio.timeout(5):
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
