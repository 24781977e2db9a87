"""The concurrent parts of virt-launcher, and the order in which they end.

First the guest ends; then clients get the last status; then libvirtd stops; the exit code and termination message tell the kubelet.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import threading
import uuid
from pathlib import Path
from typing import Final

from apiserver.apis.virt.places import layout
from launcher.dhcp.server import Server as DhcpServer
from launcher.hypervisor.connection import LibvirtHypervisor
from launcher.hypervisor.daemon import Daemon
from launcher.hypervisor.emulator import Emulator
from launcher.ipv6.server import Server as Ipv6Server
from launcher.main.decisions import life
from launcher.main.managed_domain import ManagedDomain
from launcher.main.programs import device_cgroup, qemu_log
from launcher.main.programs.children import Children
from launcher.main.programs.libvirtd import Libvirtd
from launcher.main.serving.console import Console
from launcher.main.serving.deadline import Deadline
from launcher.main.serving.screenshots import Screenshots
from launcher.main.serving.serial_ports import SerialPorts
from launcher.main.serving.wire import VERSION, Server
from launcher.protocol import messages

logger = logging.getLogger(__name__)

STOP_LIBVIRTD_SECONDS: Final = 3.0
UNUSED_LIBVIRTD_SECONDS: Final = 0.5
"""libvirtd has nothing to save if no guest ran, and may still be querying QEMU."""
FLUSH_SECONDS: Final = 1.0
LINGER_SECONDS: Final = 10.0
"""Time in which virt-handler forwards connections that still come to this pod after its guest moved.

Kubernetes takes two to four seconds to redirect a Service, and more than six on overloaded nodes.
"""


async def run(directory: Path = Path(layout.RUN_DIRECTORY), cache: Path = Path(layout.CACHE_DIRECTORY)) -> int:
    """Run virt-launcher until the guest is off; return the exit code."""
    children = Children()
    daemon = Daemon(directory, cache)
    _prepare(directory, daemon)
    threading.Thread(target=Deadline(directory / layout.DEADLINE_SOCKET).run, name="deadline", daemon=True).start()
    hypervisor = LibvirtHypervisor(daemon.uri, emulator=Emulator(layout.EMULATOR, daemon.capabilities(layout.EMULATOR)))
    dhcp, ipv6 = DhcpServer(), Ipv6Server()

    def serve_addresses(machine: messages.Machine) -> None:
        dhcp.serve(machine)
        ipv6.serve(machine)

    server: Server | None = None

    def status_changed() -> None:
        if server is not None:
            server.status_changed()

    domain = ManagedDomain(
        hypervisor,
        lambda changed: Console(directory / layout.SERIAL_SOCKET, changed),
        lambda changed: SerialPorts(directory, changed),
        children,
        qemu_log=daemon.qemu_log,
        serve_addresses=serve_addresses,
        status_changed=status_changed,
        gets_devices=device_cgroup.is_version_1(),
    )

    def status() -> messages.Status:
        return domain.status

    server = Server(VERSION, status, domain.handle, domain.reads)
    loop = asyncio.get_running_loop()
    libvirtd = Libvirtd(children, daemon)
    with dhcp, ipv6, children.reaping():
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, domain.terminate)
        async with asyncio.TaskGroup() as group:
            parts = (
                libvirtd.run(),
                hypervisor.run(),
                domain.console.run(),
                domain.console.serve(directory / layout.CONSOLE_SOCKET),
                domain.console.serve_log(directory / layout.log_socket(0)),
                domain.ports.run(),
                Screenshots(domain.screenshot).serve(directory / layout.SCREENSHOT_SOCKET),
            )
            tasks = [group.create_task(part) for part in parts]
            wire = group.create_task(server.run(directory / layout.LAUNCHER_SOCKET))
            gc.collect()
            gc.freeze()
            await domain.run()
            heard = await _flush(server)
            for task in tasks:
                task.cancel()
            _write_termination_message(domain.status.ending)  # before anything that may be killed
            if heard and life.lingers(domain.status.ending):
                await _linger(server)
            wire.cancel()
        await libvirtd.stop(STOP_LIBVIRTD_SECONDS if domain.status.started else UNUSED_LIBVIRTD_SECONDS)
    return life.exit_code(domain.status.ending)


def _prepare(directory: Path, daemon: Daemon) -> None:
    (directory / "migration").mkdir(mode=0o700, parents=True, exist_ok=True)
    daemon.prepare(str(uuid.uuid4()))


async def _flush(server: Server) -> bool:
    try:
        async with asyncio.timeout(FLUSH_SECONDS):
            await server.flush()
    except TimeoutError:
        logger.info("a client did not read the last status")
        return False
    return True


async def _linger(server: Server) -> None:
    """Wait, to keep the pod's network, while virt-handler is connected, at most ``LINGER_SECONDS``."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LINGER_SECONDS):
            await server.deserted()


def _write_termination_message(ending: messages.Ending | None) -> None:
    message = life.termination_message(ending)
    try:
        if qemu_log.TERMINATION_LOG.exists():
            qemu_log.TERMINATION_LOG.write_text(message)
    except OSError as error:
        logger.warning("cannot write the termination message", extra={"error": str(error)})
    logger.info("ending", extra={"reason": message.split("\n", 1)[0]})
