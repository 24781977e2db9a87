"""passt, the child process that relays the guest's connections (docs/decisions/networks.md)."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from apiserver.apis.virt.hardware import interfaces as hardware
from apiserver.apis.virt.places import layout, network
from launcher.domain import passt
from launcher.domain.passt import Settings
from launcher.domain.values import socket
from launcher.main.programs import vhost_user
from launcher.main.programs.children import Children
from launcher.main.programs.vhost_user import Backend

logger = logging.getLogger(__name__)

_UNSANDBOXED: Final = Path(__file__).with_name("unsandboxed.py")
"""A path, because it loads ctypes, which virt-launcher does not need."""
PROGRAM: Final = "passt"
READY_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.02
RESTART_SECONDS: Final = (0.1, 60.0)
"""First and longest delay before a restart. A guest that can crash passt can do so again."""
LASTING_SECONDS: Final = 60.0
"""After running this long, the delay is the first again."""
_ENVIRONMENT: Final = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}


class NetworkUnusable(Exception):
    """passt cannot serve an interface; the message names it and says why."""


class Passt:
    """Starts passt for the pod's machine, and restarts it when it ends."""

    def __init__(
        self, children: Children, *, lost: Callable[[str], None], found: Callable[[], None], ready_seconds: float = READY_SECONDS
    ) -> None:
        """``lost`` gets the last output when passt ends unasked, ``found`` is called when a new one is ready."""
        self._children = children
        self._lost = lost
        self._found = found
        self._ready_seconds = ready_seconds
        self._is_lost = False
        self._settings: Settings | None = None
        """Of the latest start. Processes of earlier ones are not restarted."""
        self._process: Backend[Settings] | None = None
        """It may have ended."""
        self._started: asyncio.Queue[Backend[Settings]] = asyncio.Queue()

    async def start(self, specification: Mapping[str, Any]) -> None:
        """Kill an earlier passt; if ``specification`` (``spec.domain``) needs one, start it, and wait until QEMU can connect.

        Raises NetworkUnusable if it is not installed, ended or was not ready in time; InvalidSpecification; OSError.
        """
        self._settings = None
        if self._process is not None:
            await _ended(self._process)
            self._process = None
        self._settings = settings = passt.settings(specification)
        if settings is not None:
            self._started.put_nowait(await self._begin(settings))

    async def run(self) -> None:
        """Restart passt when it ends unasked, until cancelled; then kill it."""
        try:
            while True:
                await self._keep(await self._started.get())
        finally:
            if self._process is not None:
                self._process.end()

    async def _keep(self, process: Backend[Settings]) -> None:
        loop = asyncio.get_running_loop()
        delay, since = RESTART_SECONDS[0], loop.time()
        while True:
            code = await asyncio.shield(process.exited)
            words = process.tail.end()
            if not process.is_wanted:
                return
            logger.warning("passt ended", extra={"interface": process.device.interface, "exit_code": code, "last_words": words})
            self._is_lost = True
            self._lost(f"passt ended with {code}" + (f": {words}" if words else ""))
            if loop.time() - since >= LASTING_SECONDS:
                delay = RESTART_SECONDS[0]
            again = await self._again(process.device, delay)
            if again is None:
                return
            process, delay = again
            since = loop.time()

    async def _again(self, settings: Settings, delay: float) -> tuple[Backend[Settings], float] | None:
        """Restart passt after ``delay`` seconds until it works; return process and next delay, None if a later start replaced it."""
        while True:
            await asyncio.sleep(delay)
            if settings is not self._settings:
                return None
            delay = min(2 * delay, RESTART_SECONDS[1])
            try:
                process = await self._begin(settings)
            except (NetworkUnusable, OSError) as error:
                logger.warning("cannot restart passt", extra={"error": str(error), "seconds": delay})
                continue
            return process, delay

    async def _begin(self, settings: Settings) -> Backend[Settings]:
        _clear()
        self._process = process = vhost_user.start(self._children, settings, command(settings), _ENVIRONMENT)
        try:
            await _ready(process, self._ready_seconds)
        except NetworkUnusable:
            await _ended(process)  # its successor needs its ports
            raise
        if self._is_lost:
            self._is_lost = False
            self._found()
        return process


def _clear() -> None:
    for name in (layout.PASST_SOCKET, layout.PASST_PID):
        Path(socket(name)).unlink(missing_ok=True)


def command(settings: Settings) -> list[str]:
    """Return the command line of passt for an interface, or raise NetworkUnusable without the program.

    The guest gets the addresses of the pod's link. Without ``--no-map-gw``, passt would map the gateway's address to the pod's loopback.
    """
    program = shutil.which(PROGRAM)
    if program is None:
        raise NetworkUnusable(f"interface {settings.interface!r}: virt-launcher's image has no program {PROGRAM}")
    options = ["--foreground", "--quiet", "--vhost-user", "--socket", socket(layout.PASST_SOCKET), "--pid", socket(layout.PASST_PID)]
    options += ["--interface", network.UPLINK, "--no-map-gw"]
    for option, protocol in (("--tcp-ports", "TCP"), ("--udp-ports", "UDP")):
        options += [option, ",".join(map(str, settings.ports[protocol])) or "none"]
    return [sys.executable, "-I", "-S", str(_UNSANDBOXED), str(os.getpid()), str(hardware.PASST_FILES), program, *options]


async def _ready(process: Backend[Settings], seconds: float) -> None:
    name = process.device.interface
    try:
        async with asyncio.timeout(seconds):
            while True:
                if process.exited.done():
                    raise NetworkUnusable(f"interface {name!r}: passt ended with {process.exited.result()}: {process.tail.end()}")
                if _has_written(Path(socket(layout.PASST_PID))):
                    return
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise NetworkUnusable(f"interface {name!r}: passt was not ready within {seconds:g} s") from None


def _has_written(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False


async def _ended(process: Backend[Settings]) -> None:
    process.end()
    await asyncio.shield(process.exited)
    process.tail.end()
