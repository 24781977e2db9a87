"""What a guest costs with virt-launcher's code over libvirt's test driver: ``python -m benchmarks.scale.domains``."""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from launcher.hypervisor.connection import LibvirtHypervisor
from launcher.main.disks.saved_images import Places
from launcher.main.managed_domain import ManagedDomain
from launcher.main.serving.serial_ports import SerialPorts
from launcher.protocol import messages
from tests.cluster.processes import resident_kib
from tests.unit.launcher.main.world import ConnectedConsole, FakeNetwork, IdleChildren

AT_ONCE: Final = 16
SPECIFICATION: Final = {"cpu": {"cores": 1}, "memory": {"guest": "128Mi"}, "devices": {"consoles": [{"type": "pty"}]}}
NODE: Final = (
    "<node><cpu><mhz>2000</mhz><model>x86_64</model><active>64</active><nodes>1</nodes><sockets>1</sockets><cores>64</cores>"
    "<threads>1</threads></cpu><memory>268435456</memory></node>"
)


class Driver(LibvirtHypervisor):
    """A node of libvirt's test driver, which takes only domains of its own type."""

    async def create(self, name: str, xml: str, *, validate: bool = False) -> None:
        """Define the domain with type ``test``."""
        root = ET.fromstring(xml)
        root.set("type", "test")
        await super().create(name, ET.tostring(root, encoding="unicode"), validate=validate)


def a_guest(driver: Driver, directory: Path) -> ManagedDomain:
    """Return virt-launcher's part that runs a domain, without disks, networks and an agent."""
    return ManagedDomain(
        driver,
        lambda changed: ConnectedConsole(directory / "serial", changed),
        lambda changed: SerialPorts(directory, changed),
        IdleChildren(),
        qemu_log=lambda _: directory / "log",
        serve_addresses=lambda _: None,
        status_changed=lambda: None,
        network=FakeNetwork(),
        measure=lambda _specification, _names: {},
        memory=lambda: None,
        images=Places(directory / "images", directory / "node-disk"),
    )


async def started(guests: Sequence[ManagedDomain]) -> None:
    left = iter(enumerate(guests))

    async def worker() -> None:
        for number, guest in left:
            await guest.handle(messages.Sync(messages.Machine("default", f"vm-{number}", f"uid-{number}", SPECIFICATION, "kvm", (), 20.0)))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(worker())


async def measure(count: int, per_node: int, idle_seconds: float, directory: Path) -> dict[str, float]:
    """Return how many of ``count`` guests run, and what each took (time, memory); ``per_node`` share a connection."""
    definition = directory / "node.xml"
    definition.write_text(NODE)
    async with asyncio.TaskGroup() as tasks:
        drivers = [Driver(f"test://{definition}") for _ in range(0, count, per_node)]
        running = [tasks.create_task(each.run()) for each in drivers]
        for each in drivers:
            await each.ready()
        resident, spent = resident_kib(os.getpid()), time.process_time()
        guests = [a_guest(drivers[number // per_node], directory / str(number)) for number in range(count)]
        running += [tasks.create_task(each.run()) for each in guests]
        await started(guests)
        start = time.process_time() - spent
        spent = time.process_time()
        await asyncio.sleep(idle_seconds)
        idle = (time.process_time() - spent) / idle_seconds
        alive = sum(each.status.domain is not None and each.status.domain.state == "running" for each in guests)
        found = {
            "running": alive,
            "start_ms": 1e3 * start / count,
            "kib": (resident_kib(os.getpid()) - resident) / count,
            "idle_cores": idle / count,
        }
        for task in running:
            task.cancel()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure guests of libvirt's test driver under virt-launcher's code.")
    parser.add_argument("--guests", type=int, default=300)
    parser.add_argument("--per-node", type=int, default=10, help="guests that share a connection (default: %(default)s)")
    parser.add_argument("--idle", type=float, default=60.0, help="seconds of the idle measurement (default: %(default)s)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = asyncio.run(measure(given.guests, given.per_node, given.idle, Path(directory)))
    print(f"{found['running']:.0f} of {given.guests} guests run; each took {found['start_ms']:.1f} ms of processor time to start,")
    print(f"{found['kib']:.0f} KiB, and {1e3 * found['idle_cores']:.3f} thousandths of a core while idle")


if __name__ == "__main__":
    main()
